//! A proxy in front of PostgreSQL that can cut its connections, also around a COMMIT.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The codes of a client's questions for TLS and for GSSAPI (PostgreSQL's manual, 55.7).
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
/// No message of a test is larger.
const MAX_MESSAGE: usize = 64 << 20;

/// At which moment of a COMMIT the connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The server never gets the COMMIT, so nothing is committed.
    Before,
    /// The server has committed and answered, and the client never gets the answer.
    After,
    /// Neither side hears of the other any more: the server keeps everything locked and waits for the COMMIT, and does
    /// not learn that nobody will send one.
    Parted,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Mode {
    Open,
    /// Open until the next COMMIT of a transaction that contains these bytes, and closed after it.
    Until(Arc<[u8]>, Moment),
    Closed,
}

/// A proxy on 127.0.0.1, open at first. It reads the protocol, so connections must not use TLS. Dropping it closes it.
pub struct Cut {
    port: u16,
    wire: Arc<Wire>,
    task: JoinHandle<()>,
}

struct Wire {
    server: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Connections to the server whose client is gone.
    parted: Mutex<Vec<OwnedWriteHalf>>,
}

impl Cut {
    /// Starts a proxy that forwards to this port of 127.0.0.1.
    pub async fn in_front_of(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        let wire = Arc::new(Wire { server, mode: watch::Sender::new(Mode::Open), parted: Mutex::default() });
        let task = tokio::spawn(accept(listener, Arc::clone(&wire)));
        Self { port, wire, task }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Breaks all connections; new ones end at once.
    pub fn close(&self) {
        self.wire.mode.send_replace(Mode::Closed);
    }

    pub fn open(&self) {
        self.wire.mode.send_replace(Mode::Open);
    }

    /// Opens the proxy, which closes itself at the next COMMIT.
    pub fn close_at_commit(&self, moment: Moment) {
        self.close_at_commit_of("", moment);
    }

    /// Opens the proxy, which closes itself at the next COMMIT of a transaction in which the client sent this text.
    pub fn close_at_commit_of(&self, text: &str, moment: Moment) {
        self.wire.mode.send_replace(Mode::Until(text.as_bytes().into(), moment));
    }

    /// Waits until the proxy is closed, also by itself at a COMMIT.
    pub async fn closed(&self) {
        self.wire.closed().await;
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, wire: Arc<Wire>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        if *wire.mode.borrow() == Mode::Closed {
            continue;
        }
        let wire = Arc::clone(&wire);
        connections.spawn(async move {
            tokio::select! {
                // Forwarding fails if either side goes away, which is no fault of the proxy.
                _ = wire.forward(client) => {}
                () = wire.closed() => {}
            }
        });
    }
}

impl Wire {
    async fn closed(&self) {
        self.mode.subscribe().wait_for(|mode| *mode == Mode::Closed).await.unwrap();
    }

    /// Forwards one connection until one of its ends is closed or a COMMIT is cut.
    async fn forward(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let committing = AtomicBool::new(false);
        tokio::select! {
            end = self.questions(from_client, to_server, &committing) => end,
            end = self.answers(from_server, to_client, &committing) => end,
        }
    }

    /// Forwards from the client to the server, message by message.
    async fn questions(
        &self,
        mut client: OwnedReadHalf,
        mut server: OwnedWriteHalf,
        committing: &AtomicBool,
    ) -> io::Result<()> {
        let mut started = false;
        while !started {
            let request = length_and_body(&mut client).await?;
            started = !is_negotiation(&request);
            server.write_all(&request).await?;
        }
        let mut transaction = Vec::new();
        loop {
            let mut kind = [0];
            client.read_exact(&mut kind).await?;
            let body = length_and_body(&mut client).await?;
            let present = self.mode.borrow().clone();
            if !is_query(kind, &body, "COMMIT") {
                if is_query(kind, &body, "BEGIN") {
                    transaction.clear();
                }
                transaction.extend_from_slice(&body);
            } else if let Mode::Until(text, moment) = present
                && contains(&transaction, &text)
            {
                if moment == Moment::After {
                    committing.store(true, Ordering::Release);
                } else {
                    if moment == Moment::Parted {
                        self.parted.lock().push(server);
                    }
                    self.mode.send_replace(Mode::Closed);
                    return Ok(());
                }
            }
            server.write_all(&[&kind[..], &body].concat()).await?;
        }
    }

    /// Forwards from the server to the client. Drops the answer to a COMMIT that is to be cut.
    async fn answers(
        &self,
        mut server: OwnedReadHalf,
        mut client: OwnedWriteHalf,
        committing: &AtomicBool,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = server.read(&mut buffer).await?;
            if committing.load(Ordering::Acquire) {
                self.mode.send_replace(Mode::Closed);
                return Ok(());
            }
            if length == 0 {
                return Ok(());
            }
            client.write_all(&buffer[..length]).await?;
        }
    }
}

/// Whether a message is a question for encryption; these come before the start message and have the same form.
fn is_negotiation(length_and_body: &[u8]) -> bool {
    [SSL_REQUEST, GSSENC_REQUEST].iter().any(|code| length_and_body[4..].starts_with(&code.to_be_bytes()))
}

/// Reads a length, which includes itself, and the bytes that it counts.
async fn length_and_body(client: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let length = client.read_u32().await?;
    let size = usize::try_from(length).unwrap();
    assert!((4..=MAX_MESSAGE).contains(&size), "no message of PostgreSQL's protocol has {size} bytes");
    let mut message = vec![0; size];
    message[..4].copy_from_slice(&length.to_be_bytes());
    client.read_exact(&mut message[4..]).await?;
    Ok(message)
}

/// Whether a message is this `Query` (PostgreSQL's manual, 55.7); sqlx begins and commits with such messages.
fn is_query(kind: [u8; 1], length_and_body: &[u8], query: &str) -> bool {
    let text = length_and_body[4..].strip_suffix(b"\0");
    kind == *b"Q" && text.is_some_and(|text| text.eq_ignore_ascii_case(query.as_bytes()))
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || bytes.windows(wanted.len()).any(|window| window == wanted)
}
