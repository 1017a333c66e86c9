//! One connection from the accept loop to its end: how it gets TLS, why it gets no session, and its session.
//!
//! Each connection checks itself once a second, in its own task. So there is no list of live connections that must be
//! kept consistent, and a check of the registry costs less than a microsecond. The same check sees that a certificate
//! has expired, so expiry needs no timer of its own.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::ending::EndCause;
use super::frames::Frames;
use super::routes;
use super::session::{GatewayShared, Session};
use super::streams::{NewStreams, Streams};
use super::tls::H2;
use super::wire::Wire;
use crate::listener::{self, ConnectionHandler, Entered, NoHandshake, Permits, SessionPermit};
use addon_signer_core::gateway::access::NotEligible;
use addon_signer_core::registry::NotRegistered;
use addon_signer_telemetry::audit::Caller;

/// How often a connection checks whether it may continue. Together with [`GRACE`] this is well under the 2 s of
/// invariant I15.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a connection that must end may take to finish the response that reports it.
const GRACE: Duration = Duration::from_millis(300);
/// How many streams a client may reset before the gateway has processed them; with more, its connection ends
/// (CVE-2023-44487).
const RESET_UNSEEN: usize = 20;
/// How many streams the gateway may have to reset because the client breaks the protocol or keeps sending after an
/// early response; with more, its connection ends. h2's own default.
const RESET_BROKEN: usize = 1024;
/// How often HTTP/2 pings check whether the peer is still there (RFC 9113 section 6.7).
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Accepts until `stop` is cancelled, then waits for the connections, each of which ends within the drain timeout.
pub(super) async fn accept(listener: TcpListener, shared: Arc<GatewayShared>, stop: CancellationToken) {
    let Limits { max_connections, max_handshakes, handshake_timeout, drain_timeout, .. } = shared.limits;
    let drain = drain_timeout + listener::DRAIN_MARGIN;
    let permits = Permits { handshakes: max_handshakes, handshake_timeout, sessions: max_connections, drain };
    listener::accept(listener, permits, shared, &stop).await;
}

impl ConnectionHandler for GatewayShared {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.in_effect.borrow().as_ref().map(|in_effect| Arc::clone(&in_effect.tls))
    }

    fn on_accept(&self) {
        self.stats.connections.inc();
    }

    /// Logs only to the audit log, because that is throttled: strangers must not be able to fill a disk.
    fn refused(&self, remote: SocketAddr, cause: &NoHandshake) {
        let stats = &self.stats;
        let counter = match cause {
            NoHandshake::OverCapacity(_) => Some(&stats.over_capacity),
            NoHandshake::Displaced(_) => Some(&stats.handshakes_displaced),
            NoHandshake::NotConfigured => Some(&stats.not_configured),
            NoHandshake::Slow(_) => Some(&stats.handshakes_slow),
            NoHandshake::Closed(_) | NoHandshake::Tls { .. } | NoHandshake::NoCertificate => None,
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        if let Some(failure) = cause.failure() {
            stats.handshake_failed(failure);
        }
        self.audit.refused_connection(&Caller::stranger(remote, cause.unverified().to_owned()), cause.reason(), cause);
    }

    async fn serve(self: Arc<Self>, entered: Entered, stop: CancellationToken) {
        let Entered { tls, remote, permit, .. } = entered;
        match tls.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned() {
            Some(leaf) => {
                let session = Session::new(self, remote, leaf.into_owned());
                serve(tls, permit, Arc::new(session), stop).await;
            }
            None => self.refused(remote, &NoHandshake::NoCertificate), // cannot happen: the verifier requires one
        }
    }
}

/// Serves requests until the client leaves or is idle, the identity is refused, or `stop` is cancelled.
async fn serve(tls: TlsStream<TcpStream>, mut permit: SessionPermit, session: Arc<Session>, stop: CancellationToken) {
    // Checks the peer now and logs the verdict. A refusal is sent as the response to the first request. A client that
    // sends none soon loses its permit, which is not a session's.
    let first = match session.begin() {
        Ok(()) => SWEEP,
        Err(cause) => {
            permit.only_to_refuse(cause.peer().map(|peer| peer.identity.cluster.clone()));
            GRACE
        }
    };
    let new = NewStreams::default();
    let mut streams = Streams::new(new.clone());
    let is_h2 = tls.get_ref().1.alpn_protocol() == Some(H2);
    let builder = http_builder(new, is_h2, &session.shared.limits);
    let answering = Arc::clone(&session);
    // Boxed, because hyper moves the future several times before it runs, and it takes kilobytes.
    let service = service_fn(move |request| Box::pin(routes::answer(Arc::clone(&answering), request)));
    let too_many = CancellationToken::new();
    let io = Wire::to_client(tls, is_h2.then(|| Frames::of_client(&session.shared.stats, &too_many, &session.unread)));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    tokio::pin!(connection);
    let mut sweep = interval_at(Instant::now() + first, SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = pin!(stopping(&session, is_h2, &stop, &too_many));
    let _agreed = Agreed(Arc::clone(&session));
    let mut end: Option<Instant> = None;
    let mut tunnel = None;
    loop {
        let latest = tokio::select! {
            biased;
            () = at(end) => {
                session.cut();
                return;
            }
            _ = sweep.tick() => match verdict(&session) {
                SessionVerdict::Goes => continue,
                SessionVerdict::Ends => Instant::now() + GRACE,
            },
            () = carried(&mut tunnel), if tunnel.is_some() => return,
            () = session.close.cancelled(), if end.is_none() => Instant::now() + GRACE,
            latest = stopping.as_mut(), if end.is_none() => latest,
            done = streams.run(connection.as_mut()), if tunnel.is_none() => {
                if let Err(error) = done {
                    tracing::debug!(remote = %session.remote, %error, "A connection ended early");
                }
                match session.tunnel.lock().take() {
                    Some(agreed) => tunnel = Some(agreed),
                    None => return,
                }
                continue;
            }
            // This client has not received its refusal: a connection ends once that is sent.
            () = permit.taken() => {
                session.shared.stats.refusals_unanswered.inc();
                session.cut();
                return;
            }
        };
        end = Some(end.map_or(latest, |end| end.min(latest)));
        if tunnel.is_none() {
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Drops the session's tunnel if the connection ends before the tunnel has begun. The two hold each other, so otherwise
/// neither would be dropped.
struct Agreed(Arc<Session>);

impl Drop for Agreed {
    fn drop(&mut self) {
        let tunnel = self.0.tunnel.lock().take();
        drop(tunnel); // after the lock: it ends its request, which locks the session
    }
}

/// Waits for the end of what the connection carries after HTTP.
async fn carried(tunnel: &mut Option<BoxFuture<'static, ()>>) {
    match tunnel {
        Some(tunnel) => tunnel.await,
        None => pending().await,
    }
}

/// Waits for `stop`, or for too many of what [`Frames`] counts, and returns the time by which the connection must have
/// ended. HTTP/2 itself tells the client which requests to send again. A client of HTTP/1.1 learns that the connection
/// ends from the response to its next request, so an idle connection waits for that: a request that is under way when
/// the connection is closed is lost, and many clients do not repeat a POST.
async fn stopping(session: &Session, is_h2: bool, stop: &CancellationToken, too_many: &CancellationToken) -> Instant {
    tokio::select! {
        () = stop.cancelled() => {}
        () = too_many.cancelled() => {}
    }
    let drain = session.shared.limits.drain_timeout;
    let latest = Instant::now() + drain;
    if !is_h2 && !session.is_busy() {
        timeout(drain / 2, session.called.notified()).await.ok(); // an error means that no request came
    }
    latest
}

async fn at(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => pending().await,
    }
}

enum SessionVerdict {
    Goes,
    Ends,
}

fn verdict(session: &Session) -> SessionVerdict {
    session.unread.sweep();
    match session.check() {
        Err(NotEligible::TooManyConnections { .. }) => return SessionVerdict::Ends, // counted when it was refused
        // The initial lists are incomplete, so absence is no reason to end the session yet.
        Err(NotEligible::NotRegistered { cause: NotRegistered::NotReady, .. }) => {}
        Err(cause) => {
            if session.was_admitted() {
                session.shared.stats.sessions_ended.inc(); // the others lost nothing
            }
            session.end_requests(&EndCause::Eligibility(cause), None);
            return SessionVerdict::Ends;
        }
        Ok(peer) => {
            if session.is_busy() {
                session.used();
            }
            session.end_requests(&EndCause::Route, Some(&peer));
        }
    }
    if session.is_idle() {
        session.shared.stats.idle_ended.inc();
        return SessionVerdict::Ends;
    }
    SessionVerdict::Goes
}

fn http_builder(streams: NewStreams, is_h2: bool, limits: &Limits) -> Builder<NewStreams> {
    let mut builder = Builder::new(streams);
    let max_header = usize::try_from(limits.max_header_bytes).unwrap_or(usize::MAX);
    // hyper's header timeout also runs between two requests, and drops the connection without a graceful shutdown. It
    // is long enough that the sweep acts first: the sweep shuts idle connections down gracefully, and has a shorter
    // limit for the first head.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout + 2 * SWEEP)
        .max_buf_size(max_header.max(8192)); // hyper's minimum
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.max_header_bytes)
        .max_concurrent_streams(limits.max_streams)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_send_buf_size(limits.call_buffer)
        .max_pending_accept_reset_streams(RESET_UNSEEN)
        .max_local_error_reset_streams(RESET_BROKEN)
        .keep_alive_interval(PING_INTERVAL);
    if is_h2 { builder.http2_only() } else { builder.http1_only() }
}
