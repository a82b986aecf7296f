//! Whole launches on this machine: agents on loopback addresses of their own, a real `mpirun` between them.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dem_launch::protocol::{
    AttemptSpec, Conclusion, FailureKind, FailureReason, LauncherState, Outcome, Phase, WorkerAttempt,
    WorkerHost,
};
use dem_launch::{Client, ClientTls, Identity, Role, WorkerClient};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

const AGENT: &str = env!("CARGO_BIN_EXE_dem-agent");

/// One launch at a time: each starts a dozen processes.
static TURN: Mutex<()> = Mutex::new(());

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    fn issue(&self, role: Role, folder: &Path) {
        let mut params = CertificateParams::new(vec![role.dns_name().to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("ca.crt"), &self.certificate).unwrap();
        std::fs::write(folder.join("tls.crt"), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    }
}

/// Certificates, agents and a launcher of one job; all end with it.
struct Lab {
    dir: tempfile::TempDir,
    port: u16,
    metrics_port: u16,
    workers: Vec<Child>,
    launcher: Option<Child>,
    _turn: MutexGuard<'static, ()>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Loopback address of worker `index`; the launcher is 127.0.0.1.
fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, index as u8 + 2)
}

impl Lab {
    fn new(workers: usize) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        for role in Role::ALL {
            authority.issue(role, &dir.path().join(role.dns_name()));
        }
        let installed = Command::new(AGENT).arg("install").arg(dir.path().join("bin")).status().unwrap();
        assert!(installed.success());
        std::fs::create_dir(dir.path().join("out")).unwrap();
        let (port, metrics_port) = (free_port(), free_port());
        let mut lab = Self { dir, port, metrics_port, workers: Vec::new(), launcher: None, _turn: turn };
        for index in 0..workers {
            let home = lab.path(&format!("w{index}"));
            std::fs::create_dir_all(home.join("tmp")).unwrap();
            let mut command = lab.agent("worker", &lab.path("worker.dem"), &home);
            command.arg("--listen").arg(format!("{}:{port}", address(index)));
            command.arg("--metrics-listen").arg(format!("{}:{metrics_port}", address(index)));
            command.arg("--pages-root").arg(home.join("pages"));
            lab.workers.push(command.spawn().unwrap());
        }
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn agent(&self, what: &str, tls_dir: &Path, home: &Path) -> Command {
        std::fs::create_dir_all(home.join("tmp")).unwrap();
        let log = std::fs::File::create(home.join("log")).unwrap();
        let mut command = Command::new(self.path("bin/dem-agent"));
        command.arg(what).arg("--tls-dir").arg(tls_dir).arg("--run-root").arg(home.join("run"));
        command.arg("--tmp-dir").arg(home.join("tmp")).args(["--grace-seconds", "20"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    fn start_launcher(&mut self) {
        let home = self.path("launcher");
        let mut command = self.agent("launcher", &self.path("launcher.dem"), &home);
        command.arg("--listen").arg(format!("127.0.0.1:{}", self.port));
        command.arg("--agent-port").arg(self.port.to_string());
        command.arg("--agent-program").arg(self.path("bin/dem-agent"));
        command.arg("--rsh-program").arg(self.path("bin/dem-rsh"));
        command.arg("--termination-log").arg(self.path("termination-log"));
        self.launcher = Some(command.spawn().unwrap());
    }

    fn host(&self, index: usize, ranks: &[u32]) -> WorkerHost {
        WorkerHost {
            pod: format!("job-w{index}-1"),
            uid: format!("uid-{index}"),
            node: format!("node-{index}"),
            address: address(index).into(),
            ranks: ranks.to_vec(),
        }
    }

    fn spec(&self, workers: Vec<WorkerHost>, command: &[&str]) -> AttemptSpec {
        AttemptSpec {
            job: "job".into(),
            namespace: "tests".into(),
            attempt: 1,
            token: "token-1".into(),
            workers,
            command: command.iter().map(ToString::to_string).collect(),
            env: BTreeMap::from([("GREETING".into(), "hello ranks".into())]),
            files: BTreeMap::from([("simulation.yaml".into(), "particles: []\n".into())]),
            start_deadline_seconds: 60,
            worker_lease_seconds: 3,
            launcher_lease_seconds: 600,
            yield_when_idle: true,
            mpirun_args: Vec::new(),
        }
    }

    fn tls(&self, role: Role) -> ClientTls {
        ClientTls::new(Identity::from_dir(&self.path(role.dns_name())).unwrap()).unwrap()
    }

    async fn launcher(&self) -> Client {
        let (address, tls) = (SocketAddr::from(([127, 0, 0, 1], self.port)), self.tls(Role::Operator));
        eventually("the launcher serves", async || Client::connect(address, &tls).await.ok()).await
    }

    async fn worker(&self, index: usize, role: Role) -> WorkerClient {
        let (address, tls) = (SocketAddr::from((address(index), self.port)), self.tls(role));
        eventually("the worker serves", async || WorkerClient::connect(address, &tls).await.ok()).await
    }

    /// Pushes the spec and returns once `mpirun` runs and `ready` holds.
    async fn begin(&mut self, spec: &AttemptSpec, ready: impl Fn(&LauncherState) -> bool) -> Client {
        self.start_launcher();
        let mut client = self.launcher().await;
        client.begin(spec).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = client.state().await;
            let state = answer.unwrap_or_else(|e| panic!("the launcher left: {e}\n{}", self.log("launcher")));
            if ready(&state) {
                return client;
            }
            assert!(Instant::now() < deadline, "not ready: {state:?}\n{}", self.log("launcher"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for the launcher's end: its exit code and outcome.
    async fn outcome(&mut self, within: Duration) -> (i32, Outcome) {
        let deadline = Instant::now() + within;
        let mut launcher = self.launcher.take().unwrap();
        let status = loop {
            if let Some(status) = launcher.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = launcher.kill();
                panic!("launcher still runs after {within:?}\n{}", self.log("launcher"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let text = std::fs::read_to_string(self.path("termination-log")).unwrap();
        assert!(text.len() <= 4096);
        (status.code().unwrap(), serde_json::from_str(&text).unwrap())
    }

    async fn run(&mut self, spec: &AttemptSpec) -> (i32, Outcome) {
        self.start_launcher();
        self.launcher().await.begin(spec).await.unwrap();
        self.outcome(Duration::from_secs(90)).await
    }

    fn signal(&self, index: usize, signal: Signal) {
        kill(Pid::from_raw(self.workers[index].id() as i32), signal).unwrap();
    }

    fn log(&self, who: &str) -> String {
        std::fs::read_to_string(self.path(who).join("log")).unwrap_or_default()
    }

    fn metrics(&self, index: usize) -> String {
        let mut stream = TcpStream::connect((address(index), self.metrics_port)).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn stepping(&self) -> String {
        // Cargo builds examples with the tests, beside the program.
        Path::new(AGENT).with_file_name("examples").join("stepping_rank").display().to_string()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in self.launcher.iter_mut().chain(&mut self.workers) {
            let pid = Pid::from_raw(child.id() as i32);
            if matches!(child.try_wait(), Ok(None)) {
                let _ = kill(pid, Signal::SIGCONT);
                // A worker ends its ranks when it is told to end and none may go on.
                let _ = kill(pid, Signal::SIGKILL);
            }
            let _ = child.wait();
        }
    }
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn every_rank_runs_on_the_planned_worker_and_the_launcher_succeeds() {
    let mut lab = Lab::new(3);
    // Neither in the order of addresses nor consecutive.
    let workers = vec![lab.host(1, &[0, 2]), lab.host(0, &[1]), lab.host(2, &[3, 4])];
    let script = format!(
        "cat $DEM_RUN_DIR/simulation.yaml; echo \"$DEM_RUN_DIR|$GREETING|$TMPDIR\" > {}/$OMPI_COMM_WORLD_RANK",
        lab.path("out").display()
    );
    let (code, outcome) = lab.run(&lab.spec(workers.clone(), &["sh", "-ec", &script])).await;
    assert_eq!(
        (code, outcome.conclusion),
        (0, Conclusion::Succeeded),
        "{outcome:?}\n{}",
        lab.log("launcher")
    );
    assert_eq!(outcome.ended_workers.len(), 3);
    for (host, index) in workers.iter().zip([1, 0, 2]) {
        for rank in &host.ranks {
            let home = lab.path(&format!("w{index}"));
            let said = std::fs::read_to_string(lab.path("out").join(rank.to_string())).unwrap();
            let expected = format!("{0}/run/attempt-1|hello ranks|{0}/tmp\n", home.display());
            assert_eq!(said, expected, "rank {rank}");
        }
    }
    assert_eq!(lab.log("launcher").matches("particles: []").count(), 5);
}

#[tokio::test]
async fn the_rank_that_exits_or_is_killed_first_is_named_with_its_last_lines() {
    let mut lab = Lab::new(2);
    let workers = vec![lab.host(0, &[0, 1]), lab.host(1, &[2, 3])];
    let script = "if [ $OMPI_COMM_WORLD_RANK = 2 ]; then seq 30; echo boom >&2; exit 7; fi; exec sleep 100";
    let (code, outcome) = lab.run(&lab.spec(workers.clone(), &["sh", "-c", script])).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(code, 7);
    assert_eq!(
        (failure.kind, failure.reason),
        (FailureKind::Program, FailureReason::RankExited),
        "{failure:?}"
    );
    assert_eq!(
        (failure.rank, failure.exit_code, failure.nodes),
        (Some(2), Some(7), vec!["node-1".to_owned()])
    );
    assert_eq!(failure.last_lines.len(), 20);
    assert!(failure.last_lines.contains(&"boom".to_owned()));

    let script = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 100";
    let second = AttemptSpec { attempt: 2, ..lab.spec(workers.clone(), &["sh", "-c", script]) };
    let (_, outcome) = lab.run(&second).await;
    let failure = outcome.failure.unwrap();
    assert_eq!((failure.reason, failure.rank), (FailureReason::RankSignalled, Some(1)), "{failure:?}");
    assert_eq!((failure.signal, failure.pods), (Some(11), vec!["job-w0-1".to_owned()]));

    let third = AttemptSpec { attempt: 3, ..lab.spec(workers, &["no-such-program"]) };
    let (code, outcome) = lab.run(&third).await;
    let failure = outcome.failure.unwrap();
    assert_eq!((code, failure.kind), (127, FailureKind::Configuration));
    assert_eq!(failure.reason, FailureReason::ProgramNotStarted);
}

#[tokio::test]
async fn a_killed_agent_ends_the_attempt_within_its_lease_and_is_named() {
    let mut lab = Lab::new(2);
    let spec = lab.spec(vec![lab.host(0, &[0]), lab.host(1, &[1])], &["sleep", "100"]);
    lab.begin(&spec, |state| state.phase == Phase::Running).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.signal(1, Signal::SIGKILL);
    let (code, outcome) = lab.outcome(Duration::from_secs(12)).await;
    let failure = outcome.failure.unwrap();
    assert_ne!(code, 0);
    assert_eq!(
        (failure.kind, failure.reason),
        (FailureKind::Infrastructure, FailureReason::WorkerLost),
        "{failure:?}"
    );
    assert_eq!((failure.pods, failure.nodes), (vec!["job-w1-1".to_owned()], vec!["node-1".to_owned()]));
    assert!(failure.message.contains("ranks 1"), "{}", failure.message);
    assert_eq!(outcome.ended_workers, ["job-w0-1"]);
}

#[tokio::test]
async fn ranks_of_a_frozen_agent_commit_nothing_after_their_lease_and_die_when_it_wakes() {
    let mut lab = Lab::new(2);
    let out = lab.path("out").display().to_string();
    // A process that has left its session is not found by MPI; only the agent can end it.
    let script = format!("setsid sleep 300 & exec {} 100000 20 {out}", lab.stepping());
    let spec = lab.spec(vec![lab.host(0, &[0]), lab.host(1, &[1])], &["sh", "-c", &script]);
    lab.begin(&spec, |state| state.progress.as_ref().is_some_and(|p| p.ranks == 2 && p.step > 10)).await;
    lab.signal(1, Signal::SIGSTOP);
    let frozen = dem_launch::clock::boottime_ns();
    let (_, outcome) = lab.outcome(Duration::from_secs(15)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!((failure.reason, failure.pods), (FailureReason::WorkerLost, vec!["job-w1-1".to_owned()]));
    let commits = || std::fs::read_to_string(lab.path("out/rank-1")).unwrap();
    let last: u64 = commits().lines().last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(last < frozen + 3_100_000_000, "committed {} ms after the freeze", (last - frozen) / 1_000_000);
    let before = commits();

    lab.signal(1, Signal::SIGCONT);
    let agent = lab.workers[1].id();
    let children = || std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    eventually("the agent has ended its processes", async || children().trim().is_empty().then_some(()))
        .await;
    let report = lab.worker(1, Role::Operator).await.status().await.unwrap();
    assert_eq!((report.attempt, report.ended_up_to), (None, 1));
    assert_eq!(commits(), before);
}

#[tokio::test]
async fn a_stop_request_reaches_the_pages_and_figures_are_served_while_ranks_live() {
    let mut lab = Lab::new(2);
    let stepping = lab.stepping();
    let out = lab.path("out").display().to_string();
    let spec = lab.spec(vec![lab.host(0, &[0, 1]), lab.host(1, &[2])], &[&stepping, "100000", "20", &out]);
    let mut client =
        lab.begin(&spec, |s| s.progress.as_ref().is_some_and(|p| p.steps_per_second > 1.0)).await;
    let progress = client.state().await.unwrap().progress.unwrap();
    assert_eq!(
        (progress.ranks, progress.steps, progress.particles, progress.slowest_rank),
        (3, 100_000, 300, 2)
    );
    // Loads 1, 2 and 3: the largest is 3/2 of the mean.
    assert!((progress.lambda - 0.5).abs() < 1e-12);
    assert_eq!(client.ranks().await.unwrap().len(), 3);
    let series = r#"demsolver_particles{attempt="1",demjob="job",demjob_namespace="tests",node="node-0",rank="1"} 100"#;
    assert!(lab.metrics(0).contains(series), "{}", lab.metrics(0));
    assert!(!lab.metrics(1).contains("rank=\"1\""));

    client.stop("suspended").await.unwrap();
    let (code, outcome) = lab.outcome(Duration::from_secs(30)).await;
    assert_eq!((code, outcome.conclusion), (75, Conclusion::Stopped), "{outcome:?}");
    assert_eq!(outcome.stop_reason.as_deref(), Some("suspended"));
    assert!(outcome.progress.unwrap().last_checkpoint_step.is_some());
    assert!(!lab.metrics(0).contains("demsolver"));
}

#[tokio::test]
async fn a_worker_that_is_told_to_end_lets_all_ranks_stop_first() {
    let mut lab = Lab::new(2);
    let stepping = lab.stepping();
    let out = lab.path("out").display().to_string();
    let spec = lab.spec(vec![lab.host(0, &[0]), lab.host(1, &[1])], &[&stepping, "100000", "20", &out]);
    lab.begin(&spec, |s| s.progress.as_ref().is_some_and(|p| p.step > 5)).await;
    lab.signal(1, Signal::SIGTERM);
    let (code, outcome) = lab.outcome(Duration::from_secs(30)).await;
    assert_eq!((code, outcome.conclusion), (75, Conclusion::Stopped), "{outcome:?}");
    assert!(outcome.stop_reason.unwrap().contains("job-w1-1"));
    assert!(lab.workers[1].wait().unwrap().success());
}

#[tokio::test]
async fn workers_that_do_not_answer_are_named_at_the_deadline() {
    let mut lab = Lab::new(1);
    let workers = vec![lab.host(0, &[0]), lab.host(7, &[1, 2]), lab.host(8, &[3])];
    let spec = AttemptSpec { start_deadline_seconds: 2, ..lab.spec(workers, &["true"]) };
    let started = Instant::now();
    let (_, outcome) = lab.run(&spec).await;
    assert!(started.elapsed() < Duration::from_secs(12));
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.reason, FailureReason::WorkersUnreachable);
    assert_eq!(failure.pods, ["job-w7-1", "job-w8-1"]);
    assert!(failure.message.contains("node-7 (ranks 1-2): cannot connect"), "{}", failure.message);
    assert_eq!(outcome.ended_workers, ["job-w0-1"]);
}

fn attempt(number: u64, token: &str) -> WorkerAttempt {
    WorkerAttempt {
        job: "job".into(),
        namespace: "tests".into(),
        node: "node-0".into(),
        attempt: number,
        token: token.into(),
        ranks: vec![0],
        files: BTreeMap::new(),
        until_ns: 0,
    }
}

impl Lab {
    fn rsh(&self, number: u64, token: &str, command: &str) -> Command {
        let mut rsh = Command::new(self.path("bin/dem-rsh"));
        rsh.env("DEM_TLS_DIR", self.path("launcher.dem")).env("DEM_AGENT_PORT", self.port.to_string());
        rsh.env("DEM_ATTEMPT", number.to_string()).env("DEM_ATTEMPT_TOKEN", token);
        rsh.args(["-x", &address(0).to_string(), command]);
        rsh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        rsh
    }
}

#[tokio::test]
async fn a_higher_attempt_ends_the_lower_one_and_no_lower_or_equal_one_begins_again() {
    let lab = Lab::new(1);
    let lease = Duration::from_secs(30);
    let mut old = lab.worker(0, Role::Launcher).await;
    old.begin(&attempt(1, "a"), lease).await.unwrap();
    let mut running = lab.rsh(1, "a", "echo $$; setsid sleep 300 & wait").spawn().unwrap();
    let mut digits = [0; 3];
    running.stdout.as_mut().unwrap().read_exact(&mut digits).unwrap();

    let mut new = lab.worker(0, Role::Launcher).await;
    let twin = new.begin(&attempt(1, "b"), lease).await.unwrap_err().to_string();
    assert!(twin.contains("another token"), "{twin}");
    assert_eq!(new.begin(&attempt(2, "b"), lease).await.unwrap().ended_up_to, 1);
    assert_ne!(running.wait().unwrap().code(), Some(0));
    assert!(!lab.path("w0/run/attempt-1").exists());
    let late = old.renew(1, "a", lease).await.unwrap_err().to_string();
    assert!(late.contains("attempt 2 runs here"), "{late}");
    assert!(old.begin(&attempt(1, "a"), lease).await.is_err());
    let refused = lab.rsh(1, "a", "true").output().unwrap();
    assert_eq!(refused.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("attempt 2 runs here"));

    // A lease that has ended cannot be revived, not even by its owner.
    new.renew(2, "b", lease).await.unwrap();
    assert_eq!(new.end(2).await.unwrap().ended_up_to, 2);
    assert!(new.begin(&attempt(2, "b"), lease).await.is_err());
    new.begin(&attempt(3, "c"), Duration::from_millis(300)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(new.renew(3, "c", lease).await.is_err());
    assert_eq!(new.status().await.unwrap().ended_up_to, 3);
}

#[tokio::test]
async fn a_remote_command_has_its_streams_and_its_end_and_orphans_are_reaped() {
    let lab = Lab::new(1);
    let mut client = lab.worker(0, Role::Launcher).await;
    client.begin(&attempt(1, "a"), Duration::from_secs(60)).await.unwrap();
    let mut rsh = lab.rsh(1, "a", "cat; echo \"quo ted\" >&2; exit 9").spawn().unwrap();
    let input = vec![b'x'; 200_000];
    let sent = input.clone();
    let mut stdin = rsh.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = rsh.wait_with_output().unwrap();
    writing.join().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(9), input.len()));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "quo ted\n");
    assert_eq!(lab.rsh(1, "a", "kill -9 $$").output().unwrap().status.code(), Some(128 + 9));

    for _ in 0..20 {
        let left = lab.rsh(1, "a", "(sleep 0.05 & sleep 0.05 &) ; exit 3").output().unwrap();
        assert_eq!(left.status.code(), Some(3));
    }
    let agent = lab.workers[0].id();
    let children = || std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    eventually("no zombie is left", async || children().trim().is_empty().then_some(())).await;
}

#[tokio::test]
async fn strangers_are_refused_with_a_reason() {
    let mut lab = Lab::new(1);
    lab.start_launcher();
    lab.worker(0, Role::Operator).await.status().await.unwrap();
    lab.launcher().await.state().await.unwrap();
    let worker = SocketAddr::from((address(0), lab.port));
    let launcher = SocketAddr::from(([127, 0, 0, 1], lab.port));

    Authority::new().issue(Role::Launcher, &lab.path("other-job"));
    let mut other = Identity::from_dir(&lab.path("other-job")).unwrap();
    assert!(WorkerClient::connect(worker, &ClientTls::new(other).unwrap()).await.is_err());
    // Of another authority, but trusting ours: refused by the server this time.
    std::fs::copy(lab.path("worker.dem/ca.crt"), lab.path("other-job/ca.crt")).unwrap();
    other = Identity::from_dir(&lab.path("other-job")).unwrap();
    assert!(WorkerClient::connect(worker, &ClientTls::new(other).unwrap()).await.is_err());

    assert!(WorkerClient::connect(worker, &lab.tls(Role::Worker)).await.is_err());
    assert!(Client::connect(launcher, &lab.tls(Role::Worker)).await.is_err());
    assert!(Client::connect(launcher, &lab.tls(Role::Launcher)).await.is_err());
    // A worker in the launcher's place.
    assert!(Client::connect(worker, &lab.tls(Role::Operator)).await.is_err());

    let mut plain = TcpStream::connect(worker).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    // At most a TLS alert.
    assert!(answer.len() < 16, "{answer:?}");

    eventually("the reasons are logged", async || {
        let log = lab.log("w0");
        let refusals = log.lines().filter(|line| line.contains("connection refused"));
        let reasons: Vec<&str> = refusals.collect();
        let named = |what: &str| reasons.iter().any(|line| line.contains(what));
        (named("is not for launcher.dem or operator.dem") && named("TLS") && reasons.len() >= 4).then_some(())
    })
    .await;
    lab.worker(0, Role::Operator).await.status().await.unwrap();
}
