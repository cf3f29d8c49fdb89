//! One lock that many processes contend for.

use anyhow::{Result, ensure};
use futures::future::{join_all, try_join_all};

use crate::driver::Driver;
use crate::lineup::Subject;
use crate::measure::{HOLD_MILLIS, Part, Plan, Stage, skip};
use crate::order::{Findings, Order, Work};
use crate::record::{Record, Row, Window};
use crate::subjects::TTL;

/// How many contend.
pub(crate) const PROCESSES: [usize; 4] = [2, 8, 32, 100];
/// How many contend at which round trip in milliseconds.
pub(crate) const DISTANCES: [(usize, u64); 5] = [(8, 20), (32, 20), (100, 20), (8, 100), (32, 100)];

/// Measures all subjects in turns. Starts a process for each window, so that no connections of other
/// subjects are open.
pub(crate) async fn measure(plan: &Plan, stage: &mut Stage, record: &mut Record) -> Result<()> {
    let mut troupe: Vec<&Subject> =
        plan.part.subjects().iter().filter(|subject| plan.wants(subject.name)).collect();
    let fleets: Vec<(usize, u64)> = match plan.part {
        Part::Distance => DISTANCES.to_vec(),
        Part::Cycles | Part::Contention | Part::Processes | Part::Systems | Part::Promises => {
            PROCESSES.iter().map(|processes| (*processes, 0)).collect()
        }
    };
    for (processes, round_trip) in fleets {
        stage.move_away(round_trip).await?;
        record.rows.extend(troupe.iter().map(|subject| Row {
            subject: subject.name.to_owned(),
            work: Work::Contend,
            tasks: processes,
            round_trip,
            windows: Vec::new(),
        }));
        for turn in 0..plan.repeat {
            let mut failed = Vec::new();
            for subject in troupe.iter().copied().filter(|subject| processes <= subject.most_processes()) {
                match window(plan, stage, subject, processes, turn).await {
                    Ok((version, window)) => {
                        let (name, rate) = (subject.name, window.rate());
                        eprintln!("{name}, {processes} processes, {round_trip} ms away: {rate:.0}/s");
                        if !record.versions.iter().any(|(known, _)| known == name) {
                            record.versions.push((name.to_owned(), version));
                        }
                        let row = record.rows.iter_mut().rfind(|row| row.subject == name);
                        if let Some(row) = row {
                            row.windows.push(window);
                        }
                    }
                    Err(why) => {
                        skip(
                            record,
                            subject,
                            &format!("{processes} processes, {round_trip} ms away: {why:#}"),
                        );
                        failed.push(subject.name);
                    }
                }
            }
            // A subject that does not run at all is not tried again.
            troupe.retain(|subject| {
                !failed.contains(&subject.name)
                    || record.versions.iter().any(|(known, _)| known == subject.name)
            });
        }
    }
    ensure!(!record.versions.is_empty(), "no subject matches");
    Ok(())
}

async fn window(
    plan: &Plan,
    stage: &mut Stage,
    subject: &Subject,
    processes: usize,
    turn: usize,
) -> Result<(String, Window)> {
    let start = subject.start(&plan.built).map_err(anyhow::Error::msg)?;
    let addresses = stage.addresses(subject.on).await?;
    let mut drivers = try_join_all((0..processes).map(|_| Driver::start(&start, &addresses))).await?;
    let ttl_millis = u64::try_from(TTL.as_millis())?;
    let orders: Vec<Order> = (0..processes)
        .map(|number| Order {
            work: Work::Cycles,
            tasks: 1,
            millis: subject.warm_millis(),
            hold_millis: 0,
            ttl_millis,
            name: format!("warm-{number}"),
        })
        .collect();
    obey(&mut drivers, &orders).await?;
    let order = Order {
        work: Work::Contend,
        tasks: 1,
        millis: plan.millis,
        hold_millis: HOLD_MILLIS,
        ttl_millis,
        // A new name in each window.
        name: format!("{}-{processes}-{turn}", subject.name.replace(' ', "-")),
    };
    let spent = |drivers: &[Driver]| drivers.iter().map(Driver::cpu_seconds).sum::<f64>();
    let (commands, bytes) = (stage.commands(subject.on).await?, stage.bytes(subject.on).await?);
    let (server_cpu, client_cpu) = (stage.cpu_seconds(subject.on), spent(&drivers));
    let findings = obey(&mut drivers, &vec![order; processes]).await?;
    let window = Window {
        client_cpu: spent(&drivers) - client_cpu,
        server_cpu: stage.cpu_seconds(subject.on) - server_cpu,
        commands: stage.commands(subject.on).await? - commands,
        bytes: stage.bytes(subject.on).await? - bytes,
        findings: together(&findings),
    };
    ensure!(window.findings.all > 0, "no lock acquired");
    Ok((drivers.swap_remove(0).version, window))
}

async fn obey(drivers: &mut [Driver], orders: &[Order]) -> Result<Vec<Findings>> {
    let all = drivers.iter_mut().zip(orders).map(|(driver, order)| driver.obey(order));
    join_all(all).await.into_iter().collect()
}

/// The findings of all processes together. Each knows only the handoffs within itself, which are left
/// out.
fn together(all: &[Findings]) -> Findings {
    Findings {
        count: all.iter().map(|its| its.count).sum(),
        all: all.iter().map(|its| its.all).sum(),
        failures: all.iter().map(|its| its.failures).sum(),
        micros: all.iter().map(|its| its.micros).max().unwrap_or_default(),
        grants: all.iter().flat_map(|its| its.grants.clone()).collect(),
        ..Findings::default()
    }
}
