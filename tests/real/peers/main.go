// Peers of the gateway that none of us wrote: servers that stand behind it, and clients that call through it. Each
// subcommand is a thin main around the peer's own module.
//
// A server prints "listening on ADDRESS" and serves until it is killed. A client prints a line for each case that was
// as it must be, and ends with status 1 at the first that was not.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"
)

// patience is how long a client may take altogether.
const patience = 60 * time.Second

// options are the command line; each subcommand reads what it needs.
type options struct {
	listen, gateway, path string
	cert, key, ca         string
	over                  string
	rounds, connections   int
	body                  int
	reconnect             bool
	lasts                 time.Duration
}

var subcommands = map[string]func(context.Context, options) error{
	"grpc-server":  grpcServer,
	"grpc-client":  grpcClient,
	"grpc-soak":    grpcSoak,
	"otlp-receive": otlpReceive,
	"otlp-send":    otlpSend,
	"ws-server":    wsServer,
	"ws-client":    wsClient,
	"http-server":  httpServer,
	"h2spec":       runH2spec,
	"load-http":    loadHTTP,
	"load-grpc":    loadGRPC,
}

func main() {
	if len(os.Args) < 2 || subcommands[os.Args[1]] == nil {
		fail(errors.New("the first argument is no subcommand"))
	}
	var o options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "address of a server")
	flags.StringVar(&o.gateway, "gateway", "", "HOST:PORT to call")
	flags.StringVar(&o.path, "path", "/", "path to call")
	flags.StringVar(&o.cert, "cert", "", "PEM file of the own certificate; a server without one has no TLS")
	flags.StringVar(&o.key, "key", "", "PEM file of its key")
	flags.StringVar(&o.ca, "ca", "", "PEM file of the CA of the other side")
	flags.StringVar(&o.over, "over", "grpc", "grpc or http; http1 or http2 for load-http")
	flags.IntVar(&o.rounds, "rounds", 1, "how often to run all cases, side by side; calls at a time on each connection")
	flags.IntVar(&o.connections, "connections", 1, "connections of a load program")
	flags.IntVar(&o.body, "body", 0, "bytes that load-http sends with each call")
	flags.BoolVar(&o.reconnect, "reconnect", false, "whether each call of load-http has a new connection")
	flags.DurationVar(&o.lasts, "lasts", time.Second, "how long to go on")
	flags.Parse(os.Args[2:]) // it ends the program itself
	ctx, cancel := context.WithTimeout(context.Background(), patience+o.lasts)
	defer cancel()
	if err := subcommands[os.Args[1]](ctx, o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "peers: %v\n", err)
	os.Exit(1)
}

// passed reports a case that was as it must be.
func passed(name string) { fmt.Printf("ok %s\n", name) }

// listen opens the socket of a server, and says where it is.
func listen(o options) (net.Listener, error) {
	listener, err := net.Listen("tcp", o.listen)
	if err == nil {
		fmt.Printf("listening on %s\n", listener.Addr())
	}
	return listener, err
}

// serverTLS is the server's side of TLS; nil if it has no certificate.
func serverTLS(o options) (*tls.Config, error) {
	if o.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, err
}

// clientTLS is the client's side of TLS, with its own certificate.
func clientTLS(o options) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", o.ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, nil
}
