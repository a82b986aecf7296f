//! Clients of launchers and workers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock::boottime_ns;
use crate::protocol::{
    AttemptSpec, Hello, LauncherReply, LauncherRequest, LauncherState, PROTOCOL, ProtocolError, RankFigures,
    WorkerAttempt, WorkerReply, WorkerReport, WorkerRequest, receive, send,
};
use crate::tls::{ClientTls, Role};

/// Time within which a connection must stand, TLS and hello included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which a reply must come.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection: nobody there, or the peer's certificate does not fit.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Address tried.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("no answer from {address} within {seconds} s")]
    Timeout {
        /// Address asked.
        address: SocketAddr,
        /// Seconds waited.
        seconds: f64,
    },
    /// The connection broke or the peer does not speak our protocol.
    #[error("{address}: {source}")]
    Protocol {
        /// Address asked.
        address: SocketAddr,
        /// The cause.
        source: ProtocolError,
    },
    /// The peer understood and refused.
    #[error("{address} refused: {message}")]
    Refused {
        /// Address asked.
        address: SocketAddr,
        /// Its reason.
        message: String,
    },
}

/// A connection to a server of a known role, past the hello.
pub(crate) struct Connection {
    pub(crate) stream: TlsStream<TcpStream>,
    address: SocketAddr,
    reply_timeout: Duration,
    /// The server's clock as last told, and when that arrived here.
    clock: (u64, Instant),
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, tls: &ClientTls, role: Role) -> Result<Self, ClientError> {
        let connect = async {
            let io = |source| ClientError::Connect { address, source };
            let tcp = TcpStream::connect(address).await.map_err(io)?;
            tcp.set_nodelay(true).map_err(io)?;
            // A role's name is a valid DNS name, so this conversion cannot fail.
            let name = ServerName::try_from(role.dns_name()).map_err(|e| io(std::io::Error::other(e)))?;
            let mut stream = TlsConnector::from(tls.config.clone()).connect(name, tcp).await.map_err(io)?;
            let protocol = |source| ClientError::Protocol { address, source };
            send(&mut stream, &Hello { protocol: PROTOCOL, clock_ns: boottime_ns() })
                .await
                .map_err(protocol)?;
            let hello: Hello = receive(&mut stream).await.map_err(protocol)?;
            if hello.protocol != PROTOCOL {
                return Err(protocol(ProtocolError::Version { found: hello.protocol }));
            }
            let clock = (hello.clock_ns, Instant::now());
            Ok(Self { stream, address, reply_timeout: REPLY_TIMEOUT, clock })
        };
        let seconds = CONNECT_TIMEOUT.as_secs_f64();
        tokio::time::timeout(CONNECT_TIMEOUT, connect)
            .await
            .unwrap_or(Err(ClientError::Timeout { address, seconds }))
    }

    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        request: &Q,
    ) -> Result<A, ClientError> {
        let address = self.address;
        let exchange = async {
            send(&mut self.stream, request).await?;
            receive(&mut self.stream).await
        };
        match tokio::time::timeout(self.reply_timeout, exchange).await {
            Ok(reply) => reply.map_err(|source| ClientError::Protocol { address, source }),
            Err(_) => Err(ClientError::Timeout { address, seconds: self.reply_timeout.as_secs_f64() }),
        }
    }

    fn told_clock(&mut self, clock_ns: u64) {
        self.clock = (clock_ns, Instant::now());
    }

    /// A point in the server's clock that is at most `lease` away from now: the time since the server told its clock is
    /// counted here, where it is shorter than there.
    fn server_time_in(&self, lease: Duration) -> u64 {
        let (told, at) = self.clock;
        told.saturating_add((at.elapsed() + lease).as_nanos().try_into().unwrap_or(u64::MAX))
    }
}

/// The operator's connection to a launcher.
pub struct Client(Connection);

impl Client {
    /// Connects to the launcher at `address` and proves both sides' roles.
    ///
    /// # Errors
    /// Within 5 s: nobody there, a wrong certificate, another protocol version.
    pub async fn connect(address: SocketAddr, tls: &ClientTls) -> Result<Self, ClientError> {
        Ok(Self(Connection::open(address, tls, Role::Launcher).await?))
    }

    async fn call(&mut self, request: &LauncherRequest) -> Result<LauncherState, ClientError> {
        match self.0.call(request).await? {
            LauncherReply::State(state) => {
                self.0.told_clock(state.clock_ns);
                Ok(*state)
            }
            LauncherReply::Refused { message } => {
                Err(ClientError::Refused { address: self.0.address, message })
            }
        }
    }

    /// Hands the launcher its attempt. Repeating the same number and token is harmless.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an impossible spec or when it runs another attempt.
    pub async fn begin(&mut self, spec: &AttemptSpec) -> Result<LauncherState, ClientError> {
        self.call(&LauncherRequest::Begin(Box::new(spec.clone()))).await
    }

    /// The launcher's state, without the table of ranks.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn state(&mut self) -> Result<LauncherState, ClientError> {
        self.call(&LauncherRequest::State { ranks: false }).await
    }

    /// The figures of every rank.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn ranks(&mut self) -> Result<Vec<RankFigures>, ClientError> {
        Ok(self.call(&LauncherRequest::State { ranks: true }).await?.ranks)
    }

    /// Extends the launcher's lease to `seconds` from now.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when it runs another attempt or its lease has ended.
    pub async fn renew(
        &mut self,
        attempt: u64,
        token: &str,
        seconds: u64,
    ) -> Result<LauncherState, ClientError> {
        let until_ns = self.0.server_time_in(Duration::from_secs(seconds));
        self.call(&LauncherRequest::Renew { attempt, token: token.into(), until_ns }).await
    }

    /// Asks the ranks to write a checkpoint and to end.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn stop(&mut self, reason: &str) -> Result<LauncherState, ClientError> {
        self.call(&LauncherRequest::Stop { reason: reason.into() }).await
    }
}

/// A connection to a worker, of its launcher or of the operator.
pub struct WorkerClient(Connection);

impl WorkerClient {
    /// Connects to the worker at `address` and proves both sides' roles.
    ///
    /// # Errors
    /// Within 5 s: nobody there, a wrong certificate, another protocol version.
    pub async fn connect(address: SocketAddr, tls: &ClientTls) -> Result<Self, ClientError> {
        Ok(Self(Connection::open(address, tls, Role::Worker).await?))
    }

    /// Sets the time within which a reply must come (default 10 s).
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.0.reply_timeout = timeout;
    }

    async fn call(&mut self, request: &WorkerRequest) -> Result<WorkerReport, ClientError> {
        let address = self.0.address;
        match self.0.call(request).await? {
            WorkerReply::Report(report) => {
                self.0.told_clock(report.clock_ns);
                Ok(*report)
            }
            WorkerReply::Refused { message } => Err(ClientError::Refused { address, message }),
            WorkerReply::Started => Err(ClientError::Refused {
                address,
                message: "started a command that was not asked for".into(),
            }),
        }
    }

    /// What the worker runs and which attempts have ended there.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn status(&mut self) -> Result<WorkerReport, ClientError> {
        self.call(&WorkerRequest::Status).await
    }

    /// Begins an attempt with a lease from now; its `until_ns` is filled in here.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for a fenced attempt, or one that the worker's lease or drain forbids.
    pub async fn begin(
        &mut self,
        attempt: &WorkerAttempt,
        lease: Duration,
    ) -> Result<WorkerReport, ClientError> {
        let until_ns = self.0.server_time_in(lease);
        self.call(&WorkerRequest::Begin(Box::new(WorkerAttempt { until_ns, ..attempt.clone() }))).await
    }

    /// Extends the lease to `lease` from now and reports.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the attempt is not the worker's, or its lease has ended.
    pub async fn renew(
        &mut self,
        attempt: u64,
        token: &str,
        lease: Duration,
    ) -> Result<WorkerReport, ClientError> {
        let until_ns = self.0.server_time_in(lease);
        self.call(&WorkerRequest::Renew { attempt, token: token.into(), until_ns }).await
    }

    /// Asks the worker's ranks to write a checkpoint and to end.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the attempt is not the worker's.
    pub async fn stop(&mut self, attempt: u64, token: &str) -> Result<WorkerReport, ClientError> {
        self.call(&WorkerRequest::Stop { attempt, token: token.into() }).await
    }

    /// Fences this attempt and all lower ones: kills their processes, refuses them for ever, and returns when none
    /// lives. [`WorkerReport::ended_up_to`] is the agent's word for it.
    ///
    /// # Errors
    /// A broken connection: then nothing is known.
    pub async fn end(&mut self, attempt: u64) -> Result<WorkerReport, ClientError> {
        self.call(&WorkerRequest::End { attempt }).await
    }

    /// Starts a command line; the connection becomes its streams.
    pub(crate) async fn exec(
        mut self,
        attempt: u64,
        token: &str,
        command: String,
    ) -> Result<TlsStream<TcpStream>, ClientError> {
        let address = self.0.address;
        match self.0.call(&WorkerRequest::Exec { attempt, token: token.into(), command }).await? {
            WorkerReply::Started => Ok(self.0.stream),
            WorkerReply::Refused { message } => Err(ClientError::Refused { address, message }),
            WorkerReply::Report(_) => {
                Err(ClientError::Refused { address, message: "answered with a report".into() })
            }
        }
    }
}
