//! The solver under the real `mpirun`: the same hash as alone, and every way in which a run ends.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SOLVER: &str = env!("CARGO_BIN_EXE_dem-solver");

const GAS: &str = r#"
domain: {min: [0, 0, 0], max: [1, 1, 1]}
materials: [{name: a, density: 1000, youngsModulus: 4.0e6, poissonRatio: 0.2}]
pairs: [{materials: [a, a], restitution: 0.9, friction: 0.3}]
particles:
  - lattice: {counts: [10, 10, 10], fit: [1, 1, 1], radius: 0.04, material: a, velocity: {random: {maxSpeed: 1.5, seed: 3}}}
balance: {everySteps: 100, threshold: 0}
outputs: {vtu: false, picture: {colour: None}}
"#;

struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new(text: &str, steps: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{text}time: {{end: {{steps: {steps}}}}}\n");
        std::fs::write(folder.path().join("simulation.yaml"), text).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the solver on `ranks` ranks, without mpirun if it is one.
    fn start(&self, ranks: u32) -> Child {
        self.start_with(ranks, &[])
    }

    fn start_with(&self, ranks: u32, more: &[&str]) -> Child {
        let mut command = if ranks == 1 {
            Command::new(SOLVER)
        } else {
            let mut mpirun = Command::new("mpirun");
            mpirun.args(["-n", &ranks.to_string(), SOLVER]);
            mpirun
        };
        command
            .envs([
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                ("OMPI_MCA_mpi_yield_when_idle", "1"),
                ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
            ])
            .args(["run", "--simulation"])
            .arg(self.path("simulation.yaml"))
            .arg("--output")
            .arg(self.path("output"))
            .arg("--checkpoints")
            .arg(self.path("checkpoints"))
            .arg("--pages")
            .arg(self.path("pages"))
            .args(more)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.path("stderr")).unwrap())
            .spawn()
            .unwrap()
    }

    /// Word number `word` of a rank's page.
    fn page_word(&self, rank: u32, word: usize) -> u64 {
        let bytes = std::fs::read(self.path("pages").join(dem_page::file_name(rank))).unwrap_or_default();
        bytes.get(word * 8..word * 8 + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()))
    }

    fn wait_for_step(&self, rank: u32, step: u64) {
        wait("a step", || self.page_word(rank, word(std::mem::offset_of!(dem_page::Page, step))) >= step);
    }

    fn pid(&self, rank: u32) -> Pid {
        Pid::from_raw(self.page_word(rank, word(std::mem::offset_of!(dem_page::Page, pid))) as i32)
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap()
    }

    fn hash(&self) -> String {
        let text = std::fs::read(self.path("output/attempt-1/summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&text).unwrap();
        summary["stateHash"].as_str().unwrap().to_owned()
    }

    fn checkpoints(&self) -> Vec<PathBuf> {
        let attempt = self.path("checkpoints/attempt-1");
        let steps = std::fs::read_dir(attempt).into_iter().flatten().flatten().map(|entry| entry.path());
        steps.filter(|step| step.join("manifest.json").exists()).collect()
    }
}

fn word(offset: usize) -> usize {
    offset / 8
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The exit code of `child`, which must end by itself.
fn code_of(mut child: Child) -> i32 {
    let mut code = None;
    wait("the run's end", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    code.unwrap().code().unwrap_or(-1)
}

fn overwrite(page: &Path, word: usize, value: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(page).unwrap();
    file.write_all_at(&value.to_le_bytes(), word as u64 * 8).unwrap();
}

#[test]
fn processes_give_the_hash_of_one_rank_without_mpirun() {
    let alone = Job::new(GAS, 300);
    assert_eq!(code_of(alone.start(1)), 0, "{}", alone.stderr());
    for ranks in [2, 4] {
        let job = Job::new(GAS, 300);
        assert_eq!(code_of(job.start(ranks)), 0, "{}", job.stderr());
        assert_eq!(job.hash(), alone.hash(), "{ranks} ranks");
    }
}

#[test]
fn a_killed_rank_ends_all_ranks() {
    let job = Job::new(GAS, 100_000_000);
    let child = job.start(3);
    job.wait_for_step(1, 10);
    kill(job.pid(1), Signal::SIGKILL).unwrap();
    assert_ne!(code_of(child), 0);
    for rank in 0..3 {
        wait("the ranks' end", || kill(job.pid(rank), None).is_err());
    }
}

#[test]
fn sigterm_to_one_rank_ends_all_after_a_checkpoint_from_which_the_run_goes_on() {
    let straight = Job::new(GAS, 600);
    assert_eq!(code_of(straight.start(1)), 0);
    let job = Job::new(GAS, 600);
    let child = job.start(3);
    job.wait_for_step(2, 50);
    kill(job.pid(2), Signal::SIGTERM).unwrap();
    assert_eq!(code_of(child), 75, "{}", job.stderr());
    assert!(!job.checkpoints().is_empty());
    assert_eq!(code_of(job.start(2)), 0, "{}", job.stderr());
    assert!(job.stderr().contains("continuing"), "{}", job.stderr());
    assert_eq!(job.hash(), straight.hash());
}

#[test]
fn a_rank_whose_lease_ended_ends_all_with_code_76_and_no_result() {
    let job = Job::new(GAS, 100_000_000);
    let child = job.start(2);
    job.wait_for_step(1, 10);
    let lease = word(std::mem::offset_of!(dem_page::Page, lease_end_ns));
    overwrite(&job.path("pages").join(dem_page::file_name(1)), lease, 1);
    assert_eq!(code_of(child), 76, "{}", job.stderr());
    assert!(!job.path("output/attempt-1/summary.json").exists());
}

#[test]
fn a_guard_on_one_rank_ends_all_with_code_66_and_a_checkpoint() {
    // Spheres so soft and fast that they are pressed far into each other.
    let text = GAS.replace("4.0e6", "1.0e5").replace("restitution: 0.9", "restitution: 1")
        + "contact: {tangentialRate: {perSecond: 0}}\n";
    let job = Job::new(&text, 100_000);
    assert_eq!(code_of(job.start(3)), 66, "{}", job.stderr());
    let said = job.stderr();
    assert!(said.contains("rank ") && said.contains("step ") && said.contains("overlap"), "{said}");
    assert_eq!(job.checkpoints().len(), 1);
}

#[test]
fn a_panic_on_one_rank_ends_all_with_code_70_and_names_rank_and_step() {
    let job = Job::new(GAS, 100_000_000);
    assert_eq!(code_of(job.start_with(3, &["--panic", "1:25"])), 70, "{}", job.stderr());
    assert!(job.stderr().contains("rank 1: panic in step 25"), "{}", job.stderr());
    for rank in 0..3 {
        wait("the ranks' end", || kill(job.pid(rank), None).is_err());
    }
    assert!(!job.path("output/attempt-1/summary.json").exists());
}
