package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"golang.org/x/net/http2"
)

// duplex is a stream of HTTP/2: what it writes is the request's body, what it reads the answer's.
type duplex struct {
	io.Reader
	io.Writer
}

// wsH2Client opens a WebSocket by an extended CONNECT of HTTP/2 (RFC 8441), which Go's client sends. The frames are
// those of gobwas/ws.
func wsH2Client(ctx context.Context, o options) error {
	config, err := clientTLS(o)
	if err != nil {
		return err
	}
	transport := &http2.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	body, writer := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, http.MethodConnect, "https://"+o.gateway+o.path, body)
	if err != nil {
		return err
	}
	request.Header = http.Header{":protocol": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Protocol": {subprotocol}}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Sec-Websocket-Protocol") != subprotocol {
		return fmt.Errorf("it answered %s, %v", answer.Status, answer.Header)
	}
	return exchangeFrames(duplex{answer.Body, writer})
}

// exchangeFrames sends what comes back, and has the server close.
func exchangeFrames(stream duplex) error {
	for _, text := range [][]byte{[]byte("gr\u00fc\u00df dich"), bytes.Repeat([]byte("0123456789abcdef"), large/16)} {
		// A frame is written beside the reading: the echo of a large one comes back while it is sent.
		written := make(chan error, 1)
		go func() { written <- wsutil.WriteClientMessage(stream, ws.OpBinary, text) }()
		echoed, _, err := wsutil.ReadServerData(stream)
		if err != nil {
			return err
		}
		if err := <-written; err != nil {
			return err
		}
		if !bytes.Equal(echoed, text) {
			return fmt.Errorf("%d bytes came back as %d others", len(text), len(echoed))
		}
	}
	passed("messages over HTTP/2")
	if err := wsutil.WriteClientMessage(stream, ws.OpText, []byte("close 4321")); err != nil {
		return err
	}
	_, _, err := wsutil.ReadServerData(stream)
	var closed wsutil.ClosedError
	if !errors.As(err, &closed) || closed.Code != 4321 || closed.Reason != "as you say" {
		return fmt.Errorf("it ended otherwise: %w", err)
	}
	passed("closed by the server with 4321")
	return nil
}
