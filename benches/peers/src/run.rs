//! Measures the subjects of a scenario, in turns.

use anyhow::{Result, ensure};
use futures::future::{join_all, try_join_all};

use crate::driver::{Driver, command};
use crate::figures::{Used, Window};
use crate::order::{Findings, Order, Work};
use crate::scenarios::{MOST_TASKS, Scenario, Step, Subject};
use crate::servers::Stage;
use crate::{Choice, TTL};

/// How long a contended lock is held, in milliseconds.
const HOLD: u64 = 1;

/// A row of the scenario's table.
pub(crate) struct Row {
    pub(crate) subject: &'static Subject,
    pub(crate) version: String,
    /// Of each step.
    pub(crate) windows: Vec<Vec<Window>>,
    drivers: Vec<Driver>,
}

/// Returns the rows, and why others are missing.
pub(crate) async fn measure(
    scenario: &Scenario,
    subjects: impl Iterator<Item = &'static Subject>,
    stage: &mut Stage,
    choice: &Choice,
) -> Result<(Vec<Row>, Vec<String>)> {
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for subject in subjects {
        match command(subject, &choice.built) {
            Ok(_) => {
                let windows = scenario.steps.iter().map(|_| Vec::new()).collect();
                rows.push(Row { subject, version: String::new(), windows, drivers: Vec::new() });
            }
            Err(why) => skipped.push(format!("{}: {why}", subject.name)),
        }
    }
    for (number, step) in scenario.steps.iter().enumerate() {
        let step = Step { millis: choice.millis.unwrap_or(step.millis), ..*step };
        stage.move_away(step.away).await?;
        let mut failed = vec![false; rows.len()];
        // In turns, so that a machine whose speed drifts favours no subject.
        for turn in 0..choice.repeat {
            for (place, row) in rows.iter_mut().enumerate() {
                let language = row.subject.language;
                if failed[place] || step.processes > language.most_processes() {
                    continue;
                }
                // The leftovers of one subject must not affect the next. All names have the same length.
                let name = format!("{}-{number}-{place:02}-{turn}", scenario.name);
                match row.window(stage, choice, step, name).await {
                    Ok(window) => {
                        eprintln!("{}, {}: {:.0}/s", row.subject.name, step.title(), window.rate());
                        row.windows[number].push(window);
                    }
                    Err(why) => {
                        skipped.push(format!("{}, {}: {why:#}", row.subject.name, step.title()));
                        failed[place] = true;
                        row.drivers.clear();
                    }
                }
            }
        }
    }
    for why in &skipped {
        eprintln!("skipped: {why}");
    }
    // The first stays, even without a figure: others are compared to it.
    let is_measured = |row: &Row| row.windows.iter().any(|windows| !windows.is_empty());
    let first = rows.first().map(|row: &Row| row.subject.name);
    rows.retain(|row| Some(row.subject.name) == first || is_measured(row));
    Ok((rows, skipped))
}

impl Step {
    pub(crate) fn title(&self) -> String {
        match (self.processes, self.tasks, self.away) {
            (1, 1, _) => "1 task".to_owned(),
            (1, tasks, _) if self.work == Work::Cycles => format!("{tasks} tasks"),
            (1, tasks, _) => format!("{tasks} tasks of one process"),
            (processes, _, 0) => format!("{processes} processes"),
            (processes, _, away) => format!("{processes} processes, {away} ms away"),
        }
    }
}

impl Row {
    async fn window(
        &mut self,
        stage: &mut Stage,
        choice: &Choice,
        step: Step,
        name: String,
    ) -> Result<Window> {
        let on = self.subject.on;
        if self.drivers.is_empty() {
            let addresses = stage.addresses(on).await?;
            let start = command(self.subject, &choice.built)?;
            self.drivers =
                try_join_all((0..step.processes).map(|_| Driver::start(&start, &addresses))).await?;
            let tasks = if step.processes == 1 { MOST_TASKS } else { 1 };
            let millis = self.subject.language.warm_millis();
            let warm = Step { work: Work::Cycles, tasks, millis, ..step };
            let findings = self.obey(warm, |process| format!("warm-{process}")).await?;
            ensure!(findings.count > 0, "no lock acquired in {millis} ms, {} failures", findings.failures);
        }
        let before = self.used(stage).await?;
        let findings = self.obey(step, |_| name.clone()).await?;
        let after = self.used(stage).await?;
        ensure!(findings.all > 0, "no lock acquired, {} failures", findings.failures);
        self.version.clone_from(&self.drivers[0].version);
        if step.processes > 1 {
            self.drivers.clear();
        }
        Ok(Window { findings, before, after })
    }

    async fn used(&self, stage: &Stage) -> Result<Used> {
        let client = self.drivers.iter().map(Driver::cpu_seconds).sum();
        Ok(Used { client, ..stage.used(self.subject.on).await? })
    }

    /// The findings of all processes together.
    async fn obey(&mut self, step: Step, name: impl Fn(usize) -> String) -> Result<Findings> {
        let orders: Vec<_> = (0..self.drivers.len())
            .map(|process| Order {
                work: step.work,
                tasks: step.tasks,
                millis: step.millis,
                hold_millis: HOLD,
                ttl_millis: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
                name: name(process),
            })
            .collect();
        let all = self.drivers.iter_mut().zip(&orders).map(|(driver, order)| driver.obey(order));
        let mut together = Findings::default();
        for its in join_all(all).await {
            let its = its?;
            together.count += its.count;
            together.all += its.all;
            together.failures += its.failures;
            together.overlaps += its.overlaps;
            together.micros = together.micros.max(its.micros);
            together.p50 = together.p50.max(its.p50);
            together.grants.extend(its.grants);
        }
        Ok(together)
    }
}
