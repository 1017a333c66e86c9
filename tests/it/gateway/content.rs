//! Requests whose content a backend could read as another request, with identity headers that the client chose.

use std::net::SocketAddr;

use addon_signer_core::gateway::route::Route;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use test_kit::gateway::{ANY, GatewayWorld, collect, route};

/// Content that is a request. It has no line break, so an HTTP/1.1 backend takes it for one as it stands.
const STOLEN: &str = "GET /stolen HTTP/1.1\r\nhost: a\r\nx-remote-user: system:masters\r\n\r\n";

type Content = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// What a backend that reads no content reads after its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// What follows, as the next request, unless the first one asked to close.
    UntilClose,
    /// What follows, as the next request, whatever was asked.
    More,
    /// Nothing.
    Nothing,
}

/// A backend that answers as soon as it has read a head. It notes all heads, with the numbers of their connections.
async fn start(after: After) -> (SocketAddr, UnboundedReceiver<(usize, String)>) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for number in 0.. {
            let (tcp, _) = listener.accept().await.unwrap();
            let heads = heads.clone();
            // It fails if the gateway has left, which is part of the tests.
            tokio::spawn(async move { serve(tcp, number, after, heads).await.ok() });
        }
    });
    (address, seen)
}

async fn serve(
    mut tcp: TcpStream,
    number: usize,
    after: After,
    heads: UnboundedSender<(usize, String)>,
) -> std::io::Result<()> {
    let mut read = String::new();
    loop {
        while let Some((head, rest)) = read.split_once("\r\n\r\n") {
            // It is as lenient as it can be: the length of a chunk is no request.
            let head = head.lines().skip_while(|line| !line.contains(' ')).collect::<Vec<_>>().join("\r\n");
            read = rest.to_owned();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let ends = after == After::UntilClose && head.contains("\r\nconnection: close");
            heads.send((number, head)).unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: {}\r\n\r\n", path.len());
            tcp.write_all((answer + &path).as_bytes()).await?;
            if after == After::Nothing {
                std::future::pending::<()>().await;
            }
            if ends {
                tcp.shutdown().await?;
                tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await?;
                return Ok(());
            }
        }
        let mut some = [0; 4096];
        match tcp.read(&mut some).await? {
            0 => return Ok(()),
            length => read += std::str::from_utf8(&some[..length]).unwrap(),
        }
    }
}

/// A client of HTTP/1.1 or HTTP/2.
enum Client {
    One(http1::SendRequest<Content>),
    Two(http2::SendRequest<Content>),
}

impl Client {
    /// Whichever protocol, on a new connection.
    async fn both(world: &GatewayWorld) -> [Self; 2] {
        let tls = world.tls(world.client_config(Some(&world.agent()))).await.unwrap();
        let (one, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        let mut config = world.client_config(Some(&world.agent()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let io = TokioIo::new(world.tls(config).await.unwrap());
        let (two, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        [Self::One(one), Self::Two(two)]
    }

    async fn send(&mut self, mut request: Request<Content>) -> Response<Incoming> {
        match self {
            Self::One(one) => {
                one.ready().await.unwrap();
                if request.body().size_hint().exact().is_none() && !request.headers().contains_key("content-length") {
                    // Without it hyper's client sends no content of a GET.
                    request.headers_mut().insert("transfer-encoding", "chunked".parse().unwrap());
                }
                one.send_request(request).await.unwrap()
            }
            Self::Two(two) => two.send_request(request).await.unwrap(),
        }
    }
}

fn request(method: Method, path: &str, content: Content) -> Request<Content> {
    let uri = format!("https://gateway.example{path}");
    Request::builder().method(method).uri(uri).header("host", "gateway.example").body(content).unwrap()
}

fn nothing() -> Content {
    Full::default().boxed_unsync()
}

/// Content with its length, and without.
fn contents() -> [Content; 2] {
    let piece = stream::iter([Ok(Frame::data(STOLEN.into()))]);
    [Full::from(STOLEN).boxed_unsync(), StreamBody::new(piece).boxed_unsync()]
}

fn deletes(backend: SocketAddr, delete_with_content: bool) -> Route {
    let methods = ["GET", "HEAD", "DELETE", "POST"].map(str::to_owned).into();
    Route { methods, delete_with_content, ..route("/api", &format!("http://{backend}")) }
}

/// Connection and request line of each head.
fn lines(heads: &mut UnboundedReceiver<(usize, String)>) -> Vec<(usize, String)> {
    let line = |(number, head): (usize, String)| (number, head.lines().next().unwrap().to_owned());
    std::iter::from_fn(|| heads.try_recv().ok()).map(line).collect()
}

#[tokio::test]
async fn content_where_http_gives_it_no_meaning_reaches_no_backend() {
    let (backend, mut heads) = start(After::More).await;
    let with_content = Route { path: "/delete".parse().unwrap(), ..deletes(backend, true) };
    let world = GatewayWorld::start(vec![deletes(backend, false), with_content]).await;
    for (client, (method, path)) in [
        (Method::GET, "/addons/telemetry/api"),
        (Method::HEAD, "/addons/telemetry/api"),
        (Method::DELETE, "/addons/telemetry/api"),
        (Method::GET, "/addons/telemetry/delete"),
        (Method::HEAD, "/addons/telemetry/delete"),
        (Method::GET, "/v1/whoami"),
        (Method::HEAD, "/v1/bundle"),
    ]
    .into_iter()
    .flat_map(|case| [(0, case.clone()), (1, case)])
    {
        for content in contents() {
            let mut clients = Client::both(&world).await;
            let answer = clients[client].send(request(method.clone(), path, content)).await;
            if method == Method::HEAD {
                assert_eq!(answer.status(), 400, "{path}");
                continue;
            }
            assert_eq!(collect(answer).await.problem(), (400, "content".to_owned()), "{method} {path}");
        }
    }
    // Whatever the backend had read as a request would be answered before this one.
    for client in &mut Client::both(&world).await {
        let asked = request(Method::GET, "/addons/telemetry/api/mine", nothing());
        assert_eq!(collect(client.send(asked).await).await.body, "/api/mine");
    }
    let mine = (0, "GET /api/mine HTTP/1.1".to_owned());
    assert_eq!(lines(&mut heads), [mine.clone(), mine]);
}

#[tokio::test]
async fn a_length_of_zero_is_no_content() {
    let (backend, mut heads) = start(After::More).await;
    let world = GatewayWorld::start(vec![deletes(backend, false)]).await;
    for mut client in Client::both(&world).await {
        for method in [Method::GET, Method::DELETE] {
            let unknown = StreamBody::new(stream::empty()).boxed_unsync();
            let mut asked = request(method, "/addons/telemetry/api", unknown);
            asked.headers_mut().insert("content-length", "0".parse().unwrap());
            assert_eq!(client.send(asked).await.status(), 200);
        }
    }
    assert_eq!(lines(&mut heads).len(), 4);
}

/// A backend that obeys `Connection: close` sees no second request; one that does not sees it where nobody else is.
#[tokio::test]
async fn a_delete_with_content_has_a_connection_that_ends_with_it() {
    for after in [After::UntilClose, After::More] {
        let (backend, mut heads) = start(after).await;
        let world = GatewayWorld::start(vec![deletes(backend, true)]).await;
        for mut client in Client::both(&world).await {
            for content in contents() {
                let others = |path| request(Method::GET, path, nothing());
                let before = others("/addons/telemetry/api/before");
                assert_eq!(collect(client.send(before).await).await.body, "/api/before");
                let delete = request(Method::DELETE, "/addons/telemetry/api/this", content);
                assert_eq!(collect(client.send(delete).await).await.body, "/api/this");
                for _ in 0..3 {
                    let later = others("/addons/telemetry/api/after");
                    assert_eq!(collect(client.send(later).await).await.body, "/api/after");
                }
            }
        }
        let mut seen = lines(&mut heads);
        let stolen = seen.extract_if(.., |(_, line)| line.contains("/stolen")).count();
        assert!(stolen == 0 || after == After::More, "{seen:?}");
        let of_deletes = |line: &str| line.starts_with("DELETE");
        let mut own: Vec<usize> = seen.iter().filter(|(_, line)| of_deletes(line)).map(|(number, _)| *number).collect();
        assert_eq!(own.len(), 4);
        own.dedup();
        let shared = seen.iter().filter(|(_, line)| !of_deletes(line)).all(|(number, _)| *number == 0);
        assert!(own.len() == 4, "{seen:?}");
        assert!(!own.contains(&0), "{seen:?}");
        assert!(shared, "{seen:?}");
    }
}

#[tokio::test]
async fn connection_with_incomplete_upload_is_not_reused() {
    for protocol in 0..2 {
        let (backend, mut heads) = start(After::Nothing).await;
        let world = GatewayWorld::start(vec![deletes(backend, false)]).await;
        let client = &mut Client::both(&world).await[protocol];
        let (content, rest) = futures::channel::mpsc::unbounded();
        content.unbounded_send(Ok(Frame::data(STOLEN.into()))).unwrap();
        let post = request(Method::POST, "/addons/telemetry/api/early", StreamBody::new(rest).boxed_unsync());
        assert_eq!(collect(client.send(post).await).await.body, "/api/early");
        let [mut another, _] = Client::both(&world).await;
        let later = request(Method::GET, "/addons/telemetry/api/after", nothing());
        assert_eq!(collect(another.send(later).await).await.body, "/api/after");
        drop(content);
        let expected = [(0, "POST /api/early"), (1, "GET /api/after")];
        assert_eq!(lines(&mut heads), expected.map(|(number, line)| (number, format!("{line} HTTP/1.1"))));
    }
}
