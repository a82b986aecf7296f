//! Accepts connections of known roles; shared by launcher and worker.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::clock::boottime_ns;
use crate::protocol::{Hello, PROTOCOL, ProtocolError, receive, send};
use crate::tls::ServerTls;

/// Time for TLS and hello together: a silent stranger holds a place no longer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time. A worker has its launcher's, the operator's and one for each remote command.
const MAX_CONNECTIONS: usize = 64;

/// A client's connection, past TLS, role and hello.
pub(crate) type Peer = TlsStream<TcpStream>;

/// Listens; on a machine without IPv6 the wildcard `[::]` means all of IPv4.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let mut bound = TcpListener::bind(address).await;
    if bound.is_err() && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
    }
    bound.with_context(|| format!("cannot listen on {address}"))
}

/// Serves `listener` for ever; refusals are logged with peer and reason.
pub(crate) async fn serve<H, F>(listener: TcpListener, tls: ServerTls, handle: H)
where
    H: Fn(Peer) -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), ProtocolError>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (tcp, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, handle) = (tls.clone(), handle.clone());
        tokio::spawn(async move {
            let _place = place;
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, admit(tcp, &tls)).await {
                Ok(Ok(stream)) => match handle(stream).await {
                    Ok(()) | Err(ProtocolError::Closed) => {}
                    Err(error) => tracing::info!(%peer, %error, "connection ended"),
                },
                Ok(Err(reason)) => refused(peer, &reason),
                Err(_) => refused(peer, "no TLS handshake and hello within 10 s"),
            }
        });
    }
}

fn refused(peer: SocketAddr, reason: &str) {
    tracing::warn!(%peer, reason, "connection refused");
}

async fn admit(tcp: TcpStream, tls: &ServerTls) -> Result<Peer, String> {
    let _ = tcp.set_nodelay(true);
    let acceptor = TlsAcceptor::from(tls.config.clone());
    let mut stream = acceptor.accept(tcp).await.map_err(|e| format!("TLS: {e}"))?;
    tls.role_of(stream.get_ref().1.peer_certificates())?;
    let hello: Hello = receive(&mut stream).await.map_err(|e| e.to_string())?;
    // Told in any case, so that the other side can name both versions.
    let own = Hello { protocol: PROTOCOL, clock_ns: boottime_ns() };
    send(&mut stream, &own).await.map_err(|e| e.to_string())?;
    if hello.protocol != PROTOCOL {
        return Err(ProtocolError::Version { found: hello.protocol }.to_string());
    }
    Ok(stream)
}
