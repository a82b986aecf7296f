//! `kubectl dem run --local`: the job on this machine, under the `mpirun` found here.

use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use dem_launch::{History, Pages, RankFigures};
use dem_plan::ClusterView;
use dem_plan::validate::Workload;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal as signal_stream};

use crate::cli::manifest::Manifest;
use crate::cli::plan;
use crate::cli::table::{Table, bytes, duration, grouped};

/// How often the pages are read.
const TICK: Duration = Duration::from_millis(250);
/// Time between two progress lines where there is no terminal to redraw one.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// How long `mpirun` has after a polite signal.
const GRACE: Duration = Duration::from_secs(10);
/// Lines of the log shown when a run fails.
const TAIL: usize = 20;

/// What to run, all of it decided.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the job.
    pub job: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Cores of this machine; with fewer than ranks, waiting ranks yield.
    pub cores: u32,
    /// Text of the simulation file.
    pub simulation: String,
    /// Text of `plan.json`.
    pub plan: String,
    /// Folder for everything that the run writes.
    pub folder: PathBuf,
    /// Folder that particle files are relative to.
    pub input: PathBuf,
    /// Where the checkpoint is that the run begins from.
    pub start_from: Option<PathBuf>,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of the job.
    pub job: String,
    /// Number of the attempt in this folder.
    pub attempt: u32,
    /// Exit code of `mpirun`, 128 + signal if it was killed.
    pub exit_code: i32,
    /// Number of ranks.
    pub ranks: u32,
    /// Wall time of the whole run [s].
    pub wall_seconds: f64,
    /// λ = L_max/L_mean − 1 of thread CPU seconds over the whole run.
    pub lambda: f64,
    /// Last figures of every rank.
    pub per_rank: Vec<RankFigures>,
    /// What the run left behind; a key is absent when there is no such file.
    pub files: Files,
    /// The solver's own summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<serde_json::Value>,
}

/// Files of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Files {
    /// Everything.
    pub folder: PathBuf,
    /// What the ranks printed.
    pub log: PathBuf,
    /// `summary.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<PathBuf>,
    /// The packing as a picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<PathBuf>,
    /// Collection of time steps for ParaView.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paraview: Option<PathBuf>,
    /// Folder of checkpoints, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<PathBuf>,
}

/// Reads a manifest and plans it on this machine: all cores, none in reserve. More ranks than cores share them, and a
/// notice says so.
///
/// # Errors
/// When the manifest is wrong, is not a simulation, or begins from a checkpoint of which `start_from` does not say where
/// it is on this machine.
pub fn prepare(
    file: &Path,
    ranks: Option<u32>,
    folder: Option<PathBuf>,
    start_from: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let mut manifest = Manifest::read(file)?;
    let spec = &mut manifest.job.spec;
    if let Some(ranks) = ranks {
        spec.ranks = i32::try_from(ranks).context("--ranks")?;
    }
    // These say what a cluster must offer; here there is one machine, and it is taken as it is.
    spec.ranks_per_node = None;
    spec.placement.reserve_cores_per_node = 0;
    spec.placement.node_selector.clear();
    spec.placement.tolerations.clear();
    spec.placement.affinity = None;
    spec.placement.topology.clear();
    manifest.job.metadata.uid.get_or_insert_default();
    let job = plan::validated(&manifest.job, &plan::beside(&manifest))?;
    let Workload::Simulation { simulation, .. } = &job.workload else {
        bail!(
            "spec.program: found a program, expected spec.simulation; a program of your own runs under mpirun as it is"
        );
    };
    if job.restart_from.is_some() && start_from.is_none() {
        bail!(
            "spec.restartFrom: found a checkpoint on a cluster's volume, expected --start-from with its folder on this \
             machine"
        );
    }
    let cores =
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    if job.ranks > cores {
        eprintln!("notice: {} ranks share the {cores} cores of this machine", job.ranks);
    }
    let host = nix::unistd::gethostname().ok().and_then(|h| h.into_string().ok());
    let room = u64::from(cores.max(job.ranks)) * u64::from(job.cpus_per_rank);
    // Memory is the kernel's business here: what the manifest asks of a pod says little about this machine.
    let cluster = ClusterView::local(&host.unwrap_or_else(|| "localhost".to_owned()), room, u64::MAX >> 16);
    let input = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let placed = plan::place(&job, &plan::particle_files(&job, &input)?, &cluster)?;
    Ok(Run {
        folder: folder.unwrap_or_else(|| fresh_folder(&job.name)),
        ranks: job.ranks,
        cores,
        simulation: simulation.to_yaml(),
        plan: placed.file.to_json(),
        input,
        start_from,
        job: job.name,
    })
}

/// Runs to the end. Progress goes to standard error. Ctrl-C asks the ranks for a checkpoint; a second one ends
/// `mpirun` at once.
///
/// # Errors
/// When `mpirun` or `dem-solver` is missing, or a file cannot be written. A run that fails is a [`Report`].
pub async fn run(run: &Run) -> anyhow::Result<Report> {
    let mpirun = find_mpirun()?;
    let solver = find_solver()?;
    let output = run.folder.join("output");
    let attempt = next_attempt(&output)?;
    let checkpoints = run.folder.join("checkpoints");
    std::fs::create_dir_all(&run.folder).with_context(|| format!("create {}", run.folder.display()))?;
    let simulation = written(&run.folder, "simulation.yaml", &run.simulation)?;
    let plan_file = written(&run.folder, "plan.json", &run.plan)?;
    let log = run.folder.join(format!("attempt-{attempt}.log"));
    let shared = SharedMemory::create()?;
    let ranks: Vec<u32> = (0..run.ranks).collect();
    // No agent, no lease: a lease of 0 is none.
    let mut pages = Pages::create(shared.0.clone(), &ranks, 0).context("create the ranks' pages")?;

    let mut command = Command::new(&mpirun);
    command.arg("-n").arg(run.ranks.to_string()).arg(&solver).arg("run");
    for (flag, path) in [
        ("--simulation", simulation.as_path()),
        ("--plan", &plan_file),
        ("--output", &output),
        ("--checkpoints", &checkpoints),
        ("--pages", &shared.0),
        ("--input-dir", &run.input),
    ] {
        command.arg(flag).arg(path);
    }
    if let Some(folder) = &run.start_from {
        command.arg("--start-from").arg(folder);
    }
    command.args(["--attempt", &attempt.to_string(), "--restart", "auto"]);
    command.envs(mpi_environment(run.ranks, run.cores));
    let log_file = std::fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(log_file.try_clone()?).stderr(log_file);
    // A group of its own: Ctrl-C reaches this process only, which then asks for a checkpoint first.
    command.process_group(0).kill_on_drop(true);
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {}", mpirun.display()))?;

    let mut progress = ProgressLine::new(&run.job);
    let (exit_code, ranks) = watch(&mut child, &mut pages, &mut progress).await?;
    progress.end();
    if exit_code != 0 && exit_code != STOPPED {
        eprintln!("{}", tail(&log, TAIL));
    }
    let attempt_folder = output.join(format!("attempt-{attempt}"));
    let existing = |path: PathBuf| path.exists().then_some(path);
    let summary = existing(attempt_folder.join("summary.json"));
    Ok(Report {
        job: run.job.clone(),
        attempt,
        exit_code,
        ranks: run.ranks,
        wall_seconds: started.elapsed().as_secs_f64(),
        lambda: dem_page::imbalance(ranks.iter().map(|r| r.calc_seconds)),
        per_rank: ranks,
        summary: match &summary {
            Some(path) => Some(serde_json::from_slice(&std::fs::read(path)?).context("summary.json")?),
            None => None,
        },
        files: Files {
            folder: run.folder.clone(),
            log,
            picture: existing(attempt_folder.join("packing.png")),
            paraview: existing(attempt_folder.join("packing.pvd")),
            checkpoints: existing(checkpoints),
            summary,
        },
    })
}

/// Exit code of a solver that stopped on request after writing a checkpoint.
const STOPPED: i32 = dem_page::exit::STOPPED;

/// Waits for `mpirun`, showing progress and passing on Ctrl-C. Returns its exit code and the last figures.
async fn watch(
    child: &mut Child,
    pages: &mut Pages,
    progress: &mut ProgressLine,
) -> anyhow::Result<(i32, Vec<RankFigures>)> {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let signal = |signal: Signal| {
        if let Some(group) = group {
            // It may have ended in between, which is what we wait for anyway.
            let _ = killpg(group, signal);
        }
    };
    let mut tick = tokio::time::interval(TICK);
    let mut interrupts = 0;
    let mut interrupt = signal_stream(SignalKind::interrupt())?;
    let mut terminate = signal_stream(SignalKind::terminate())?;
    let mut kill_at: Option<tokio::time::Instant> = None;
    let status = loop {
        let kill = async {
            match kill_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = child.wait() => break status.context("wait for mpirun")?,
            _ = tick.tick() => {
                pages.refresh();
                progress.show(pages.figures());
            }
            () = async { tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            } } => {
                interrupts += 1;
                if interrupts == 1 {
                    progress.say("stopping: the ranks write a checkpoint; once more to stop at once");
                    pages.refresh();
                    if !pages.request_stop().is_empty() {
                        // Not all ranks are up: there is nothing to save.
                        signal(Signal::SIGTERM);
                        kill_at = Some(tokio::time::Instant::now() + GRACE);
                    }
                } else {
                    progress.say("stopping at once");
                    signal(Signal::SIGTERM);
                    kill_at = Some(tokio::time::Instant::now() + GRACE);
                }
            }
            () = kill => {
                signal(Signal::SIGKILL);
                kill_at = None;
            }
        }
    };
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    pages.refresh();
    Ok((code, pages.figures()))
}

/// Folder of the pages; removed with its contents when dropped.
struct SharedMemory(PathBuf);

impl SharedMemory {
    fn create() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("dem-local-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // Left-overs cost a few kilobytes of memory until the next boot; nothing else can be done here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Settings of the MPI library, in the names of Open MPI 4, of PRRTE (Open MPI 5) and, where it needs any, MPICH.
fn mpi_environment(ranks: u32, cores: u32) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        // Slots are counted as physical cores by default; the number of ranks is decided by the plan, not there.
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        // Faster on virtual machines, and needed where ptrace is forbidden.
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ];
    if ranks > cores {
        settings.push(("OMPI_MCA_mpi_yield_when_idle", "1"));
        settings.push(("OMPI_MCA_hwloc_base_binding_policy", "none"));
        settings.push(("PRTE_MCA_hwloc_default_binding_policy", "none"));
    }
    if nix::unistd::geteuid().is_root() {
        settings.push(("OMPI_ALLOW_RUN_AS_ROOT", "1"));
        settings.push(("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"));
        settings.push(("PRTE_ALLOW_RUN_AS_ROOT", "1"));
        settings.push(("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"));
    }
    settings
}

fn find_mpirun() -> anyhow::Result<PathBuf> {
    match in_path("mpirun") {
        Some(path) => Ok(path),
        None => bail!(
            "mpirun is not installed (no such program in PATH); on Debian and Ubuntu: \
             sudo apt-get install openmpi-bin"
        ),
    }
}

fn find_solver() -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("dem-solver")));
    match beside.filter(|path| path.is_file()).or_else(|| in_path("dem-solver")) {
        Some(path) => Ok(path),
        None => bail!(
            "dem-solver is neither beside this program nor in PATH; build it with: cargo build --release -p dem-solver"
        ),
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn written(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// One more than the highest attempt whose folder exists under `output`: a folder used again goes on from its last
/// checkpoint and never overwrites what is there.
fn next_attempt(output: &Path) -> anyhow::Result<u32> {
    let entries = match std::fs::read_dir(output) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(1),
        Err(error) => return Err(error).with_context(|| format!("read {}", output.display())),
    };
    let mut last = 0;
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix("attempt-")).and_then(|n| n.parse().ok());
        last = last.max(number.unwrap_or(0));
    }
    Ok(last + 1)
}

/// A folder in the working directory that does not exist yet: `<job>-run-<k>`.
pub fn fresh_folder(job: &str) -> PathBuf {
    let mut k = 1_u32;
    loop {
        let folder = PathBuf::from(format!("{job}-run-{k}"));
        if !folder.exists() {
            return folder;
        }
        k += 1;
    }
}

fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The live line: redrawn on a terminal, one line now and then elsewhere.
struct ProgressLine {
    job: String,
    redraw: bool,
    drawn: bool,
    shown: Option<Instant>,
    history: History,
}

impl ProgressLine {
    fn new(job: &str) -> Self {
        Self {
            job: job.to_owned(),
            redraw: std::io::stderr().is_terminal(),
            drawn: false,
            shown: None,
            history: History::default(),
        }
    }

    fn show(&mut self, ranks: Vec<RankFigures>) {
        let now = Instant::now();
        let Some(line) = self.line(now, ranks) else { return };
        if self.redraw {
            eprint!("\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
            self.drawn = true;
        } else if self.shown.is_none_or(|at| now - at >= PLAIN_INTERVAL) {
            eprintln!("{line}");
            self.shown = Some(now);
        }
    }

    /// The line for these figures; `None` before the first rank has started.
    fn line(&mut self, now: Instant, ranks: Vec<RankFigures>) -> Option<String> {
        let p = self.history.add(now, ranks)?;
        let percent = 100 * p.step / p.steps.max(1);
        let mut line = format!("{}  step {}/{} ({percent} %)", self.job, grouped(p.step), grouped(p.steps));
        if let Some(left) = p.seconds_left {
            let (left, lambda) = (duration(left), 100.0 * p.lambda);
            line.push_str(&format!("  {:.1} steps/s  {left} left  λ {lambda:.1} %", p.steps_per_second));
        }
        Some(line)
    }

    /// Prints a line of its own.
    fn say(&mut self, text: &str) {
        self.end();
        eprintln!("{}: {text}", self.job);
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.drawn) {
            eprintln!();
        }
    }
}

/// The report for people: a table of ranks, then where things are.
pub fn text(report: &Report) -> String {
    let mut table = Table::new([
        "rank",
        "particles",
        "ghosts",
        "Calc [s]",
        "Comm [s]",
        "Wait1 [s]",
        "Wait2 [s]",
        "received",
    ]);
    for r in &report.per_rank {
        table.row([
            r.rank.to_string(),
            grouped(r.particles),
            grouped(r.ghosts),
            format!("{:.2}", r.calc_seconds),
            format!("{:.2}", r.comm_seconds),
            format!("{:.2}", r.wait1_seconds),
            format!("{:.2}", r.wait2_seconds),
            bytes(r.bytes_received.iter().sum()),
        ]);
    }
    let mut text = table.to_string();
    let steps: u64 = report.per_rank.iter().map(|r| r.step - r.start_step.min(r.step)).min().unwrap_or(0);
    text.push_str(&format!(
        "\n{} steps on {} rank{} in {}, λ {:.1} %\n",
        grouped(steps),
        report.ranks,
        if report.ranks == 1 { "" } else { "s" },
        duration(report.wall_seconds),
        100.0 * report.lambda,
    ));
    if let Some(hash) = report.summary.as_ref().and_then(|s| s.get("stateHash")).and_then(|h| h.as_str()) {
        text.push_str(&format!("state hash  {hash}\n"));
    }
    let files = &report.files;
    for (what, path) in [
        ("picture", files.picture.as_ref()),
        ("ParaView", files.paraview.as_ref()),
        ("summary", files.summary.as_ref()),
        ("checkpoints", files.checkpoints.as_ref()),
        ("log", Some(&files.log)),
    ] {
        if let Some(path) = path {
            text.push_str(&format!("{what:<11} {}\n", path.display()));
        }
    }
    match report.exit_code {
        0 => {}
        STOPPED => text.push_str(&format!(
            "stopped on request; go on from the checkpoint with --output-dir {}\n",
            files.folder.display()
        )),
        code => text.push_str(&format!("failed with exit code {code}\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use dem_page::State;

    use super::*;

    fn rank(rank: u32, step: u64, calc_seconds: f64) -> RankFigures {
        let state = State::Running as u64;
        RankFigures { rank, state, step, end_step: 1000, calc_seconds, ..RankFigures::default() }
    }

    #[test]
    fn the_live_line_shows_rate_time_left_and_the_recent_imbalance() {
        let mut line = ProgressLine::new("drum");
        let start = Instant::now();
        // An imbalance of long ago must not show.
        line.line(start, vec![rank(0, 100, 50.0), rank(1, 102, 10.0)]);
        let text =
            line.line(start + Duration::from_secs(2), vec![rank(0, 300, 51.0), rank(1, 301, 13.0)]).unwrap();
        assert_eq!(text, "drum  step 300/1,000 (30 %)  100.0 steps/s  7.0 s left  λ 50.0 %");
    }

    #[test]
    fn before_the_first_page_there_is_no_line() {
        assert_eq!(ProgressLine::new("drum").line(Instant::now(), Vec::new()), None);
    }

    #[test]
    fn a_folder_used_again_gets_the_next_attempt() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(next_attempt(&folder.path().join("output")).unwrap(), 1);
        for name in ["attempt-1", "attempt-9", "attempt-x", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(next_attempt(folder.path()).unwrap(), 10);
    }
}
