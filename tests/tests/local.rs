//! Whole runs on this machine without a cluster: manifest, planner, mpirun, solver, report.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use anyhow::Context;
use dem_tests::local::{a_small_job, finished, run, run_whatever};
use dem_tests::read;
use serde_json::json;

#[test]
fn the_state_is_the_same_to_the_last_bit_on_one_two_and_five_ranks() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let job = a_small_job([12, 10, 8], 400).to_string();
    let runs = [1_u32, 2, 5]
        .map(|ranks| run(&job, &folder.path().join(ranks.to_string()), ranks))
        .into_iter()
        .collect::<anyhow::Result<Vec<_>>>()?;
    let hashes = runs.iter().map(|r| r.state_hash()).collect::<anyhow::Result<Vec<_>>>()?;
    anyhow::ensure!(hashes.iter().all(|h| *h == hashes[0]), "{hashes:?}");
    // Not by doing nothing: the runs moved particles between ranks and opened and closed contacts.
    let last = runs[2].summary();
    for counter in ["rebuilds", "migrations", "contactsOpened", "contactsClosed"] {
        anyhow::ensure!(last[counter].as_u64().is_some_and(|n| n > 0), "{counter} in {last}");
    }
    // And the hash tells states apart.
    let longer = run(&a_small_job([12, 10, 8], 401).to_string(), &folder.path().join("longer"), 2)?;
    anyhow::ensure!(longer.state_hash()? != hashes[0]);
    Ok(())
}

#[test]
fn a_run_leaves_report_summary_picture_and_paraview_files() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut job = a_small_job([10, 8, 6], 60);
    job["spec"]["simulation"]["inline"]["outputs"] = json!({"everySteps": 30});
    let run = run(&job.to_string(), folder.path(), 2)?;
    anyhow::ensure!(run.report["exitCode"] == 0 && run.report["ranks"] == 2, "{}", run.report);
    let per_rank = run.report["perRank"].as_array().context("perRank")?;
    anyhow::ensure!(per_rank.len() == 2, "{per_rank:?}");
    let particles: u64 = per_rank.iter().filter_map(|r| r["particles"].as_u64()).sum();
    anyhow::ensure!(particles == 480, "the ranks own {particles} of 480 particles");
    let picture = std::fs::read(run.file("picture")?)?;
    anyhow::ensure!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1000, "no picture");
    let collection = std::fs::read_to_string(run.file("paraview")?)?;
    let count = collection.matches("<DataSet").count();
    anyhow::ensure!(count == 3, "steps 0, 30 and 60, found {count}: {collection}");
    let summary: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(run.file("summary")?)?)?;
    anyhow::ensure!(summary["endStep"] == 60 && summary["particles"] == 480, "{summary}");
    Ok(())
}

#[test]
fn a_folder_used_again_goes_on_from_its_checkpoint_on_another_rank_count() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut job = a_small_job([10, 8, 6], 150);
    job["spec"]["simulation"]["inline"]["checkpoint"] = json!({"everySteps": 50});
    let whole = run(&job.to_string(), &folder.path().join("whole"), 2)?;
    let broken = folder.path().join("broken");
    job["spec"]["simulation"]["inline"]["time"]["end"] = json!({"steps": 100});
    run(&job.to_string(), &broken, 3)?;
    job["spec"]["simulation"]["inline"]["time"]["end"] = json!({"steps": 150});
    let resumed = run(&job.to_string(), &broken, 2)?;
    anyhow::ensure!(resumed.report["attempt"] == 2, "{}", resumed.report);
    let start = resumed.summary()["startStep"].as_u64().context("startStep")?;
    anyhow::ensure!((50..=100).contains(&start), "started at step {start}");
    anyhow::ensure!(resumed.state_hash()? == whole.state_hash()?, "the restart changed the trajectory");
    Ok(())
}

#[test]
fn another_runs_checkpoint_is_where_a_run_begins_or_it_says_what_is_missing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut job = a_small_job([10, 8, 6], 100);
    job["spec"]["simulation"]["inline"]["checkpoint"] = json!({"everySteps": 50});
    let first = run(&job.to_string(), &folder.path().join("first"), 2)?;
    job["spec"]["simulation"]["inline"]["time"]["end"] = json!({"steps": 150});
    let whole = run(&job.to_string(), &folder.path().join("whole"), 2)?;
    let at = folder.path().join("second");
    let output = run_whatever(&job.to_string(), &at, 3, Some(&first.file("checkpoints")?))?;
    let second = finished(&at, &output)?;
    anyhow::ensure!(second.summary()["startStep"] == 100, "{}", second.summary());
    anyhow::ensure!(second.state_hash()? == whole.state_hash()?, "the start changed the trajectory");
    // What is meant for a cluster is not passed over here.
    job["spec"]["restartFrom"] = json!({"job": "shaken"});
    job["spec"]["checkpoint"] = json!({"volume": {"persistentVolumeClaim": {"claimName": "kept"}}});
    let refused = run_whatever(&job.to_string(), &folder.path().join("third"), 2, None)?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    anyhow::ensure!(!refused.status.success() && said.contains("--start-from"), "{said}");
    Ok(())
}

#[test]
fn the_samples_run_here() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for name in ["packing", "periodic", "skewed"] {
        let mut job: serde_json::Value =
            serde_yaml::from_str(&read(format!("manifests/samples/{name}.yaml"))?)?;
        // The first steps only.
        job["spec"]["simulation"]["inline"]["time"]["end"] = json!({"steps": 20});
        let run = run(&job.to_string(), &folder.path().join(name), 2).with_context(|| name.to_owned())?;
        anyhow::ensure!(run.report["perRank"].as_array().is_some_and(|r| r.len() == 2), "{name}");
        if name == "skewed" {
            let particles = |rank: usize| run.report["perRank"][rank]["particles"].as_u64().unwrap_or(0);
            let both = [particles(0).max(particles(1)), particles(0).min(particles(1))];
            anyhow::ensure!(both == [20_000, 10_000], "{both:?}: the sheets are not two against one");
        }
    }
    Ok(())
}

#[test]
fn a_wrong_manifest_is_refused_with_the_field_before_anything_runs() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut job = a_small_job([10, 8, 6], 60);
    job["spec"]["simulation"]["inline"]["pairs"][0]["restitution"] = json!(1.5);
    let refused = run_whatever(&job.to_string(), folder.path(), 2, None)?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    anyhow::ensure!(
        !refused.status.success() && said.contains("restitution") && said.contains("1.5"),
        "{said}"
    );
    anyhow::ensure!(!folder.path().join("run/output").exists(), "something ran");
    Ok(())
}
