//! Large heads of HTTP/2: h2 keeps the buffers of those whose paths the connection's HPACK table keeps.

use std::sync::Arc;

use http_body_util::Full;
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::frames::{self, frame};
use test_kit::gateway::{GatewayWorld, SOON};

/// A head whose path enters the table (RFC 7541 section 6.2.1), after fields that do not. It is malformed, because the
/// path comes first: h2 forgets such a head, although it is not `ended`.
fn head(stream: u32, fields: usize, is_ended: bool) -> Vec<u8> {
    let path = format!("/{stream:x}");
    let mut block = frames::field("a", &"x".repeat(100)).repeat(fields);
    block.extend([0x40 | 4, u8::try_from(path.len()).unwrap()]);
    block.extend(path.as_bytes());
    let pieces: Vec<_> = block.chunks(16_384).collect();
    let mut bytes = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        let kind = if n == 0 { frames::HEADERS } else { frames::CONTINUATION };
        let is_last = n + 1 == pieces.len();
        let end = if is_last && (is_ended || n == 0) { frames::END_HEADERS } else { 0 };
        bytes.extend(frame(kind, end | if n == 0 { frames::END_STREAM } else { 0 }, stream, piece));
    }
    bytes
}

/// Sends so many such heads on a connection of its own; returns how many could be sent until it ended.
async fn send(world: &GatewayWorld, count: u32, fields: usize, is_ended: bool) -> u32 {
    let mut config = world.client_config(Some(&world.agent()));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (mut read, mut write) = tokio::io::split(world.tls_shared(Arc::new(config)).await.unwrap());
    write.write_all(&[frames::PREFACE, &frame(frames::SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    for n in 0..count {
        if write.write_all(&head(2 * n + 1, fields, is_ended)).await.is_err() || write.flush().await.is_err() {
            return n;
        }
        // What the gateway says of this head: a refusal, or the end of the connection.
        if !matches!(timeout(SOON, read.read(&mut [0; 65_536])).await.unwrap(), Ok(1..)) {
            return n;
        }
    }
    count
}

#[tokio::test]
async fn clients_with_many_large_heads_lose_their_connection() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut other = world.connect_h2(&world.agent()).await;
    // Of 82 KB, the second time without an end; of one frame of 15 KB.
    for (connections, fields, is_ended, most) in [(1, 800, true, 4), (2, 800, false, 4), (3, 150, true, 16)] {
        let sent = send(&world, 1_000, fields, is_ended).await;
        assert!(sent <= most, "{sent} heads of {fields} fields were taken");
        assert_eq!(world.stats.large_heads_ended.get(), connections);
    }
    // Smaller ones are as many as the client wants.
    assert_eq!(send(&world, 1_000, 35, true).await, 1_000);
    assert_eq!(world.stats.large_heads_ended.get(), 3);
    let request = Request::get("https://gateway.example/v1/whoami").body(Full::default()).unwrap();
    assert_eq!(other.send_request(request).await.unwrap().status(), 200);
}
