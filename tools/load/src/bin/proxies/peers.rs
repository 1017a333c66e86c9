//! nginx and HAProxy in the place of the gateway.
//!
//! Like the gateway they stream both ways, keep their connections to the backend, write no access log, and tell the
//! backend who calls.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use test_kit::process::Process;

use crate::GRPC;

pub(crate) fn start_nginx(address: SocketAddr, backend: SocketAddr, directory: &Path) -> Process {
    let program = installed("nginx");
    let version = Command::new(&program).arg("-v").output().unwrap().stderr;
    let version = String::from_utf8(version).unwrap();
    fs::write(directory.join("nginx.conf"), nginx_configuration(address, backend, &version)).unwrap();
    let flags = ["-p", directory.to_str().unwrap(), "-e", "error.log", "-c", "nginx.conf"].map(str::to_owned);
    let nginx = Process::start(Path::new(&program), &flags, directory);
    wait_until_it_listens(&nginx, address);
    nginx
}

pub(crate) fn start_haproxy(address: SocketAddr, backend: SocketAddr, directory: &Path) -> Process {
    fs::write(directory.join("haproxy.cfg"), haproxy_configuration(address, backend)).unwrap();
    let flags = ["-db", "-f", "haproxy.cfg"].map(str::to_owned);
    let haproxy = Process::start(Path::new(&installed("haproxy")), &flags, directory);
    wait_until_it_listens(&haproxy, address);
    haproxy
}

fn installed(name: &str) -> String {
    let found = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].iter().map(|place| format!("{place}/{name}"));
    let found = found.into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| panic!("{name} is not installed (on Debian: apt-get install {name})"))
}

pub(crate) fn wait_until_it_listens(process: &Process, address: SocketAddr) {
    let listening = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        TcpStream::connect(address).is_ok()
    });
    assert!(listening, "nothing listens on {address}: {}", process.tail());
}

/// Each worker has a socket of its own, so that they get equally many connections. Before 1.25.1 (which says so) HTTP/2
/// was a parameter of `listen`.
fn nginx_configuration(address: SocketAddr, backend: SocketAddr, version: &str) -> String {
    let minor = |version: &str| version.split_once("nginx/1.")?.1.split('.').next()?.trim().parse::<u32>().ok();
    let [listen, http2] =
        if minor(version).is_some_and(|minor| minor <= 25) { [" http2", ""] } else { ["", "http2 on;"] };
    format!(
        "daemon off; worker_processes auto; worker_cpu_affinity auto; pid nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi; tcp_nodelay on; keepalive_requests 100000000; keepalive_time 1d;
  upstream addon {{ server {backend}; keepalive 128; keepalive_requests 100000000; keepalive_time 1d; }}
  upstream grpc {{ server {backend}; keepalive 128; keepalive_requests 100000000; keepalive_time 1d; }}
  server {{
    listen {address} ssl reuseport{listen}; {http2} ssl_protocols TLSv1.3;
    ssl_certificate serving.pem; ssl_certificate_key serving.pem;
    ssl_client_certificate client-ca.crt; ssl_verify_client on; ssl_session_cache off; ssl_session_tickets off;
    client_max_body_size 1m; http2_max_concurrent_streams 256;
    location / {{
      proxy_pass http://addon; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_set_header X-Remote-User $ssl_client_s_dn; proxy_request_buffering off; proxy_buffering off;
    }}
    location {GRPC} {{ grpc_pass grpc://grpc; grpc_set_header X-Remote-User $ssl_client_s_dn; }}
  }}
}}
"
    )
}

/// HAProxy has as many threads as there are cores by default.
fn haproxy_configuration(address: SocketAddr, backend: SocketAddr) -> String {
    format!(
        "global
  maxconn 4096
  tune.ssl.cachesize 0
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend addons
  bind {address} ssl crt serving.pem ca-file client-ca.crt verify required alpn h2,http/1.1 ssl-min-ver TLSv1.3 \
no-tls-tickets
  http-request set-header X-Remote-User %[ssl_c_s_dn]
  use_backend grpc if {{ path_beg {GRPC} }}
  default_backend addon
backend addon
  server addon {backend}
backend grpc
  server grpc {backend} proto h2
"
    )
}
