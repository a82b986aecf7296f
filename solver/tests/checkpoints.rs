//! Checkpoints: damaged, torn and foreign ones are refused by name, the previous good one is taken, old ones go.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

mod runs;

use std::path::{Path, PathBuf};

use dem_solver::args::Restart;
use dem_solver::failure::exit;
use dem_solver::simulation::End;
use runs::Case;

const GAS: &str = r#"
domain: {min: [0, 0, 0], max: [1, 1, 1]}
materials: [{name: a, density: 1000, youngsModulus: 4.0e6, poissonRatio: 0.2}]
pairs: [{materials: [a, a], restitution: 0.9, friction: 0.3}]
particles:
  - lattice: {counts: [8, 8, 8], fit: [1, 1, 1], radius: 0.05, material: a, velocity: {random: {maxSpeed: 1.5, seed: 3}}}
time: {end: {steps: 250}}
checkpoint: {everySteps: 50, keep: 3}
outputs: {vtu: false, picture: {colour: None}}
"#;

fn steps(case: &Case, attempt: u64) -> Vec<u64> {
    let folder = case.folder.path().join(format!("checkpoints/attempt-{attempt}"));
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut steps: Vec<u64> =
        names.map(|name| name.to_str().unwrap().strip_prefix("step-").unwrap().parse().unwrap()).collect();
    steps.sort_unstable();
    steps
}

fn checkpoint(case: &Case, step: u64) -> PathBuf {
    case.folder.path().join(format!("checkpoints/attempt-1/step-{step}"))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn the_newest_ones_are_kept_and_other_attempts_files_stay() {
    let mut case = Case::new(GAS);
    case.run(3);
    assert_eq!(steps(&case, 1), [150, 200, 250]);
    case.job.attempt = 2;
    (case.job.restart, case.job.start_from) = (Restart::Never, Some(checkpoint(&case, 150)));
    let ran = case.run(2);
    assert_eq!(ran.number("startStep"), 150);
    assert_eq!(steps(&case, 1), [150, 200, 250]);
    assert_eq!(steps(&case, 2), [200, 250]);
}

#[test]
fn a_damaged_torn_or_unfinished_one_is_skipped_for_the_one_before() {
    let mut case = Case::new(GAS);
    let straight = case.run(2).hash;
    // The end state is damaged in a record, the one before lacks its manifest.
    flip(&checkpoint(&case, 250).join("chunk-1.bin"), 5000);
    std::fs::remove_file(checkpoint(&case, 200).join("manifest.json")).unwrap();
    case.job.attempt = 2;
    let ran = case.run(3);
    assert_eq!(ran.number("startStep"), 150);
    assert_eq!(ran.hash, straight);

    let chunk = checkpoint(&case, 150).join("chunk-0.bin");
    let bytes = std::fs::read(&chunk).unwrap();
    std::fs::write(&chunk, &bytes[..bytes.len() - 1]).unwrap();
    std::fs::remove_dir_all(case.folder.path().join("checkpoints/attempt-2")).unwrap();
    let ran = case.run(1);
    assert_eq!((ran.number("startStep"), &ran.hash), (0, &straight));
}

#[test]
fn a_run_begins_from_another_s_last_checkpoint_and_goes_on_from_its_own() {
    let mut case = Case::new(GAS);
    let straight = case.run(2).hash;
    // A folder of runs: the run that wrote last counts, however far another one was.
    let runs = tempfile::tempdir().unwrap();
    let other = runs.path().join("other/run-1");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::rename(case.folder.path().join("checkpoints"), &other).unwrap();
    std::fs::remove_dir_all(other.join("attempt-1/step-250")).unwrap();
    let older = runs.path().join("other/run-0/attempt-1/step-240");
    std::fs::create_dir_all(&older).unwrap();
    std::fs::write(older.join("manifest.json"), "{}").unwrap();
    std::fs::File::open(older.join("manifest.json")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();

    let mut next = Case::new(GAS);
    next.job.start_from = Some(runs.path().join("other"));
    let ran = next.run(3);
    assert_eq!((ran.number("startStep"), &ran.hash), (200, &straight));
    // Its own checkpoint comes first from then on.
    next.job.attempt = 2;
    let ran = next.run(1);
    assert_eq!((ran.number("startStep"), &ran.hash), (250, &straight));

    let mut lost = Case::new(GAS);
    lost.job.start_from = Some(runs.path().join("nobody"));
    let failure = lost.ends(1, None).swap_remove(0).unwrap_err();
    assert_eq!(failure.exit_code(), exit::UNREADABLE);
    assert!(failure.to_string().contains("nobody: no checkpoint there"), "{failure}");
}

#[test]
fn every_kind_of_damage_is_named() {
    let mut case = Case::new(GAS);
    case.run(2);
    let folder = checkpoint(&case, 250);
    let refused = |case: &Case| {
        let mut job = case.job.clone();
        (job.restart, job.start_from) = (Restart::Never, Some(folder.clone()));
        let mut copy = Case::new(GAS);
        copy.job = job;
        let failure = copy.ends(1, None).swap_remove(0).unwrap_err();
        assert_eq!(failure.exit_code(), exit::UNREADABLE);
        failure.to_string()
    };
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(manifest.contains(from), "{manifest}");
        std::fs::write(folder.join("manifest.json"), manifest.replacen(from, to, 1)).unwrap();
        let said = refused(&case);
        std::fs::write(folder.join("manifest.json"), &manifest).unwrap();
        said
    };
    let said = with("\"version\":1", "\"version\":2");
    assert!(said.contains("version 2, this program reads version 1"), "{said}");
    let said = with("dem-checkpoint", "other");
    assert!(said.contains("format \"other\""), "{said}");
    let said = with("\"simulation\":\"", "\"simulation\":\"00");
    assert!(said.contains("belongs to another simulation"), "{said}");
    let said = with("chunk-0.bin", "../step-200/chunk-0.bin");
    assert!(said.contains("outside the folder"), "{said}");
    let said = with("{", "");
    assert!(said.contains("manifest.json"), "{said}");

    let chunk = folder.join("chunk-1.bin");
    let good = std::fs::read(&chunk).unwrap();
    flip(&chunk, 3);
    assert!(refused(&case).contains("damaged in its header"));
    std::fs::write(&chunk, &good).unwrap();
    flip(&chunk, good.len() - 1);
    assert!(refused(&case).contains("damaged in block 0"));
    std::fs::write(&chunk, &good[..good.len() / 2]).unwrap();
    assert!(refused(&case).contains("the manifest says"));
    std::fs::write(&chunk, std::fs::read(folder.join("chunk-0.bin")).unwrap()).unwrap();
    let said = refused(&case);
    assert!(
        said.contains("not the file that the manifest names") || said.contains("bytes, the manifest"),
        "{said}"
    );
    std::fs::remove_file(&chunk).unwrap();
    assert!(refused(&case).contains("cannot be read"));
}

#[test]
fn a_started_run_refuses_another_gravity_but_takes_another_end_and_ghost_layer() {
    let mut case = Case::new(GAS);
    case.run(2);
    case.job.attempt = 2;
    let other = GAS.replace("steps: 250", "steps: 300") + "ghostLayer: 4R\n";
    case.job.simulation = dem_config::Simulation::from_yaml(&other).unwrap();
    let ran = case.run(3);
    assert_eq!((ran.number("startStep"), ran.number("endStep")), (250, 300));

    case.job.attempt = 3;
    let other = format!("{GAS}gravity: [0, 0, -1.62]\n");
    case.job.simulation = dem_config::Simulation::from_yaml(&other).unwrap();
    let ends = case.ends(2, None);
    let failure = ends[0].as_ref().unwrap_err();
    assert_eq!(failure.exit_code(), exit::UNREADABLE);
    assert!(failure.to_string().contains("belongs to another simulation"), "{failure}");
}

#[test]
fn a_guard_writes_the_last_good_state_and_ends_every_rank() {
    let text = GAS.replace("4.0e6", "1.0e5").replace("everySteps: 50", "everySteps: 0");
    let case = Case::new(&text);
    let ends = case.ends(3, None);
    let messages: Vec<&str> = ends
        .iter()
        .map(|end| match end {
            Ok(End::Violated { message }) => message.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(messages.iter().any(|m| m.contains("overlap") && m.contains("step") && m.contains("particle")));
    assert_eq!(steps(&case, 1).len(), 1);
}
