use std::future::poll_fn;
use std::time::Duration;

use addon_signer_core::gateway::permits::MinRate;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::upload::UploadLimit;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
/// How many bytes the backend has room for, one at a time.
const ROOM: usize = 3_000;

/// The next frame that a backend receives: type, flags, and how long it is.
async fn receive(backend: &mut DuplexStream) -> (u8, u8, usize) {
    let mut head = [0; 9];
    backend.read_exact(&mut head).await.unwrap();
    let [a, b, c, kind, flags, ..] = head;
    let length = usize::from_be_bytes([0, 0, 0, 0, 0, a, b, c]);
    backend.read_exact(&mut vec![0; length]).await.unwrap();
    (kind, flags, length)
}

async fn receive_until(backend: &mut DuplexStream, kind: u8, flags: u8) {
    loop {
        let (other, has, _) = receive(backend).await;
        if other == kind && has & flags == flags {
            break;
        }
    }
}

/// Each part of a piece takes h2 370 bytes or so until the backend reads it.
#[tokio::test]
async fn a_backend_that_makes_room_byte_by_byte_gets_few_parts() {
    let (near, mut backend) = duplex(64);
    let (sender, connection) = h2::client::handshake(near).await.unwrap();
    tokio::spawn(connection);
    backend.read_exact(&mut [0; 24]).await.unwrap(); // the preface
    backend.write_all(&[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]).await.unwrap(); // no window for a stream
    receive_until(&mut backend, SETTINGS, ACK).await;
    let mut sender = sender.ready().await.unwrap();
    let (_response, stream) = sender.send_request(Request::new(()), false).unwrap();
    receive_until(&mut backend, HEADERS, 0).await;
    let limit = UploadLimit::rate(MinRate { bytes_per_second: 1, grace: Duration::from_secs(3600) });
    let body = Upload::new((Full::from(vec![0; 4_000]), None), 4_000, limit, UploadProgress::new());
    let on_the_way = body.on_the_way();
    let mut upload = Pump { body, stream, piece: Bytes::new(), on_the_way, is_over: false };
    let uploading = tokio::spawn(async move { poll_fn(|cx| upload.poll(cx)).await.is_ok() });
    for _ in 0..ROOM {
        backend.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1]).await.unwrap(); // WINDOW_UPDATE
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }
    let (mut bytes, mut parts) = (0, 0);
    while bytes < ROOM {
        let (kind, _, length) = receive(&mut backend).await;
        if kind == DATA {
            (bytes, parts) = (bytes + length, parts + 1);
        }
    }
    // h2 has written some 1,640 frames that small into a buffer.
    assert!((64..1_800).contains(&parts), "{parts} parts");
    assert!(!uploading.is_finished());
    backend.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 4, 0]).await.unwrap(); // room for the rest
    while bytes < 4_000 {
        let (kind, _, length) = receive(&mut backend).await;
        bytes += if kind == DATA { length } else { 0 };
    }
    assert!(uploading.await.unwrap());
}
