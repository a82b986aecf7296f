//! The wrapper around one rank: passes everything through and records how the rank ended.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::Pid;

use crate::children::{code_and_signal, die_with_parent};
use crate::last_lines::{LastLines, Lines, Stream};
use crate::protocol::RankEnd;

/// Environment variable, set by the agent, that names the attempt's run folder.
pub const RUN_DIR_VARIABLE: &str = "DEM_RUN_DIR";
/// Environment variable, set by the agent, that names the folder of the attempt's pages.
pub const PAGES_DIR_VARIABLE: &str = "DEM_PAGES_DIR";
/// Time that output of a dead rank, held open by a process that it left behind, is still read.
const DRAIN: Duration = Duration::from_millis(500);
/// Exit code for a program that cannot be started, as of a shell.
const NOT_STARTED: i32 = 127;

/// File of the wrapper's process id in the run folder.
pub(crate) fn pid_file(run_dir: &Path, rank: u32) -> PathBuf {
    run_dir.join(format!("rank-{rank}.pid"))
}

/// File of a [`RankEnd`] in the run folder.
pub(crate) fn end_file(run_dir: &Path, rank: u32) -> PathBuf {
    run_dir.join(format!("rank-{rank}.end.json"))
}

/// The rank that MPI's launcher gave this process.
fn own_rank() -> Option<u32> {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Runs the program as this process's rank and ends as it does: with its exit code, or by its signal.
///
/// # Errors
/// Signals cannot be set up. A program that cannot be started is no error here: it is recorded, and the code is 127.
pub fn run(program: &[String]) -> io::Result<i32> {
    let place = std::env::var_os(RUN_DIR_VARIABLE).map(PathBuf::from).zip(own_rank());
    if let Some((run_dir, rank)) = &place {
        write_whole(&pid_file(run_dir, *rank), std::process::id().to_string().as_bytes());
    }
    let signals = SigSet::from_iter([
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ]);
    // Blocked before any thread starts. The standard library gives the program an empty mask.
    signals.thread_block()?;
    let told = Arc::new(AtomicBool::new(false));
    let pid = Arc::new(AtomicI32::new(0));

    let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(name);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_parent(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let message = format!("cannot start {name}: {error}");
            eprintln!("{message}");
            record(&place, |rank| RankEnd {
                not_started: Some(message),
                ..ended(rank, Some(NOT_STARTED), None)
            });
            return Ok(NOT_STARTED);
        }
    };
    pid.store(child.id() as i32, Ordering::SeqCst);
    let (forward_told, forward_pid) = (told.clone(), pid.clone());
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) {
                forward_told.store(true, Ordering::SeqCst);
            }
            let pid = forward_pid.load(Ordering::SeqCst);
            if pid > 0 {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    });

    let lines = LastLines::default();
    let (done, streams_done) = std::sync::mpsc::channel();
    tee(child.stdout.take(), io::stdout(), lines.stream(Stream::Stdout), done.clone());
    tee(child.stderr.take(), io::stderr(), lines.stream(Stream::Stderr), done);
    let status = child.wait()?;
    pid.store(0, Ordering::SeqCst);
    // MPI's launcher signals the whole group: the program may have died of a signal that is still on its way here.
    let (exit_code, signal) = code_and_signal(status);
    if signal.is_some() {
        thread::sleep(Duration::from_millis(50));
    }
    // Both senders are dropped when both streams have ended.
    while streams_done.recv_timeout(DRAIN).is_ok() {}
    let last_lines = lines.lines();
    let told = told.load(Ordering::SeqCst);
    record(&place, |rank| RankEnd { told, last_lines, ..ended(rank, exit_code, signal) });
    if let Some(signal) = signal.and_then(|number| Signal::try_from(number).ok()) {
        // Die of the same, so that MPI's launcher reports it so. Where that does not end us, the shell's code does.
        let _ = SigSet::from_iter([signal]).thread_unblock();
        let _ = raise(signal);
    }
    Ok(exit_code.unwrap_or_else(|| 128 + signal.unwrap_or(0)))
}

fn ended(rank: u32, exit_code: Option<i32>, signal: Option<i32>) -> RankEnd {
    let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    RankEnd { rank, at_ms, exit_code, signal, told: false, not_started: None, last_lines: Vec::new() }
}

fn record(place: &Option<(PathBuf, u32)>, end: impl FnOnce(u32) -> RankEnd) {
    if let Some((run_dir, rank)) = place
        && let Ok(text) = serde_json::to_vec(&end(*rank))
    {
        write_whole(&end_file(run_dir, *rank), &text);
    }
}

/// Writes a file so that readers see all of it or nothing. A failure costs only the record: the rank goes on.
fn write_whole(path: &Path, bytes: &[u8]) {
    let part = path.with_extension("part");
    if let Err(error) = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path)) {
        eprintln!("dem-agent rank: cannot write {}: {error}", path.display());
    }
}

/// Copies a stream through as it comes and keeps its last lines.
fn tee(
    from: Option<impl Read + Send + 'static>,
    mut to: impl Write + Send + 'static,
    mut lines: Lines,
    done: std::sync::mpsc::Sender<()>,
) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        let _done = done;
        let mut from = BufReader::new(from);
        while let Ok(read @ [_, ..]) = from.fill_buf() {
            // A reader that went away must not end the rank.
            let _ = to.write_all(read).and_then(|()| to.flush());
            lines.feed(read);
            let length = read.len();
            from.consume(length);
        }
        // The last line before the word that the stream has ended.
        drop(lines);
    });
}
