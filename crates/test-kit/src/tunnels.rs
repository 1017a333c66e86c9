//! An HTTP proxy that makes tunnels (`CONNECT`).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A running proxy. It ends when it is dropped.
pub struct TunnelProxy {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl TunnelProxy {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(tunnel(stream, Arc::clone(&seen)));
            }
        });
        Self { address, asked, _task: AbortOnDropHandle::new(task) }
    }

    /// Whether a tunnel to this address was asked for.
    pub fn was_asked_for(&self, address: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked == address)
    }
}

async fn tunnel(mut client: TcpStream, asked: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let to = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let mut server = TcpStream::connect(&to).await.unwrap();
    asked.lock().unwrap().push(to);
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    // Either side ends as it likes.
    copy_bidirectional(&mut client, &mut server).await.ok();
}
