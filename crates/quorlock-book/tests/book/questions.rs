//! What a newcomer asks is answered within two clicks of the README.

use std::collections::HashSet;
use std::path::PathBuf;

use quorlock_book::link::links;
use quorlock_book::page::page;

/// A question, the page that answers it, and how the answer begins there.
const QUESTIONS: [(&str, &str, &str); 20] = [
    ("which TTL", "docs/choosing.md", "\n## TTL\n"),
    ("do masters that die while I hold a lock matter", "docs/failures.md", "\n## A node is down\n"),
    ("how many masters", "docs/which-lock.md", "\n## How many nodes\n"),
    ("may it be a managed Redis", "docs/managed.md", "\n## Redis and Valkey as a service\n"),
    ("is it safe if a process is paused", "docs/fencing.md", "# Fencing\n\nA lock that expires cannot stop"),
    ("how do I test my code without servers", "docs/testing.md", "# Testing your own code\n"),
    ("how does one of ten hosts run a job of cron", "docs/jobs.md", "\n## One run for each slot\n"),
    ("was the lock held, or did it fail", "docs/jobs.md", "\n## What happens when\n"),
    ("who holds a lock, and how do I free it", "docs/faq.md", "**Who holds a lock, and how do I free it?**"),
    ("how do I replace a master", "docs/masters.md", "\n## Adding, replacing, removing\n"),
    ("which rights, passwords and TLS", "SECURITY.md", "\n## Permissions on a node\n"),
    ("why not etcd", "docs/faq.md", "**Why not etcd?**"),
    ("what does it cost", "docs/benchmarks.md", "\n# Benchmarks\n"),
    ("how do I upgrade quorlock", "docs/upgrade.md", "\n## The clients\n"),
    ("is there something for asyncio and Celery", "docs/python.md", "APScheduler and Celery\n"),
    ("is it reentrant", "docs/kinds.md", "\n## Reentrancy\n"),
    ("what do I monitor", "docs/observability.md", "\n## Dashboard and alerts\n"),
    ("why should I believe it", "docs/trust.md", "# Why trust it\n"),
    ("which kind of lock, and on which nodes", "docs/which-lock.md", "\n## Which kind\n"),
    ("what does a lock across datacenters cost", "docs/which-lock.md", "\n## One place or several\n"),
];

#[test]
fn every_question_is_answered_within_two_clicks_of_the_readme() {
    let mut reached = HashSet::from([PathBuf::from("README.md")]);
    for _ in 0..2 {
        let before: Vec<PathBuf> = reached.iter().cloned().collect();
        for from in before {
            let here = page(&from).unwrap();
            let targets = links(&here.text).into_iter().map(|link| link.resolve(&from).0);
            reached.extend(targets.filter(|path| path.extension().is_some_and(|it| it == "md")));
        }
    }
    for (question, path, answer) in QUESTIONS {
        assert!(reached.contains(&PathBuf::from(path)), "{question}? {path} is more than two clicks away");
        assert!(page(path).unwrap().text.contains(answer), "{question}? {path} does not say {answer:?}");
    }
}

#[test]
fn the_name_that_a_page_says_is_refused_is_refused() {
    let page = page("docs/choosing.md").unwrap().text;
    let (_, names) = page.split_once("Names such as `").unwrap();
    let (name, _) = names.split_once('`').unwrap();
    assert!(quorlock::protocol::is_auxiliary_key(name), "{name}");
}
