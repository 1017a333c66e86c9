//! Requests that an HTTP/2 backend has refused unprocessed are sent again (RFC 9113 section 8.7); others never are.

use std::sync::atomic::Ordering;

use addon_signer_core::gateway::route::Protocol;
use h2::Reason;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::frames::{self, Act, Frame, Treat};
use super::http_backend::{piece, pieces, route_to, text};
use super::http2::{client, post};
use test_kit::gateway::{GatewayWorld, SOON, mk_backend};
use test_kit::wait_until;

/// Refuses it unprocessed.
const REFUSALS: [Treat; 2] = [
    |stream| Act::Send(frames::reset(stream, Reason::REFUSED_STREAM)),
    |stream| Act::Send(frames::go_away(stream - 1)),
];

/// Treats the first streams so, and answers the others.
fn first(count: usize, treat: Treat) -> impl Fn(&Frame, usize) -> Act + Clone {
    move |frame, requests| match frame.flags & frames::END_STREAM {
        _ if requests <= count && frame.kind == frames::HEADERS => treat(frame.stream),
        0 => Act::Send(Vec::new()),
        _ => Act::Send(frames::answer(frame.stream, "fine")),
    }
}

#[tokio::test]
async fn a_request_that_is_refused_unprocessed_is_sent_again() {
    for treat in REFUSALS {
        let (address, requests) = frames::start(first(2, treat)).await;
        let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
        let answer = client(&world).await.send_request(post("/x", text("").into_body())).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "fine");
        assert_eq!(requests.load(Ordering::Relaxed), 3);
    }
}

#[tokio::test]
async fn a_request_is_sent_again_while_its_client_sends_no_body() {
    for treat in REFUSALS {
        let (address, requests) = frames::start(first(1, treat)).await;
        let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
        let mut h2 = client(&world).await;
        let (pieces, body) = pieces();
        let sending = async {
            let again = async || (requests.load(Ordering::Relaxed) == 2).then_some(());
            wait_until(SOON, "the request to be sent again", again).await;
            pieces.unbounded_send(piece("x")).unwrap();
            drop(pieces);
        };
        let (answer, ()) = futures::join!(h2.send_request(post("/x", body.boxed_unsync())), sending);
        assert_eq!(answer.unwrap().into_body().collect().await.unwrap().to_bytes(), "fine");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_again_and_again_is_given_up() {
    let (address, requests) = frames::start(first(3, REFUSALS[0])).await;
    let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
    let mut h2 = client(&world).await;
    for (expected, sent) in [(502, 3), (200, 4)] {
        assert_eq!(h2.send_request(post("/x", text("").into_body())).await.unwrap().status(), expected);
        assert_eq!(requests.load(Ordering::Relaxed), sent);
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_sent_again() {
    let treatments: [Treat; 4] = [
        |stream| Act::Send(frames::reset(stream, Reason::CANCEL)),
        |stream| Act::Close(frames::go_away(stream)),
        |_| Act::Close(frames::go_away(u32::MAX >> 1)), // the first of a graceful shutdown
        |_| Act::Close(Vec::new()),
    ];
    for treat in treatments {
        let (address, requests) = frames::start(first(1, treat)).await;
        let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
        let mut h2 = client(&world).await;
        for (expected, sent) in [(502, 1), (200, 2)] {
            let answer = timeout(SOON, h2.send_request(post("/x", text("").into_body()))).await.unwrap().unwrap();
            assert_eq!((answer.status().as_u16(), requests.load(Ordering::Relaxed)), (expected, sent));
        }
    }
}

/// The gateway has no copy of it.
#[tokio::test]
async fn a_request_whose_body_has_begun_is_not_sent_again() {
    for treat in REFUSALS {
        let act = move |frame: &Frame, _| match frame.kind {
            frames::DATA => treat(frame.stream),
            _ => Act::Send(Vec::new()),
        };
        let (address, requests) = frames::start(act).await;
        let world = GatewayWorld::start(vec![route_to(mk_backend(address, Protocol::H2c))]).await;
        let answer = client(&world).await.send_request(post("/x", text("some").into_body())).await.unwrap();
        assert_eq!((answer.status().as_u16(), requests.load(Ordering::Relaxed)), (502, 1));
    }
}
