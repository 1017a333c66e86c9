//! A proxy in front of an API server whose connections can go silent: they stay open, the kernel acknowledges what is
//! sent, and nothing is passed on in either direction. New connections work.

use std::net::{Ipv4Addr, SocketAddr};

use kube::config::Kubeconfig;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A proxy on 127.0.0.1. Dropping it closes all its connections.
pub struct Silence {
    /// How often the present connections were silenced.
    silenced: watch::Sender<u32>,
    /// How many connections were accepted.
    accepted: watch::Receiver<u32>,
    task: JoinHandle<()>,
}

impl Silence {
    /// Starts a proxy in front of the server of this kubeconfig, and makes the kubeconfig use it.
    pub async fn in_front_of(kubeconfig: &mut Kubeconfig) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
        let (_, server) = cluster.server.as_ref().unwrap().rsplit_once(':').unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server.parse().unwrap()));
        cluster.server = Some(format!("https://127.0.0.1:{port}"));
        let (silenced, silence) = watch::channel(0);
        let (counter, accepted) = watch::channel(0);
        let task = tokio::spawn(accept(listener, server, silence, counter));
        Self { silenced, accepted, task }
    }

    /// Silences all present connections; returns how many there were since the start.
    pub fn fall(&self) -> u32 {
        self.silenced.send_modify(|times| *times += 1);
        *self.accepted.borrow()
    }

    /// The number of connections since the start.
    pub fn connections(&self) -> u32 {
        *self.accepted.borrow()
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, silence: watch::Receiver<u32>, counter: watch::Sender<u32>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        counter.send_modify(|count| *count += 1);
        let mut silence = silence.clone();
        silence.mark_unchanged();
        connections.spawn(forward(client, server, silence));
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr, mut silence: watch::Receiver<u32>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        // An end of either side is no fault of the proxy.
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = silence.changed() => std::future::pending().await,
    }
}
