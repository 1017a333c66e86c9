package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

const (
	large       = 1 << 20
	subprotocol = "echo.example.com"
)

// wsServer sends messages back. At the message "close CODE" it closes with that code.
func wsServer(_ context.Context, o options) error {
	listener, err := listen(o)
	if err != nil {
		return err
	}
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Subprotocols:    []string{subprotocol},
			CompressionMode: websocket.CompressionContextTakeover,
		})
		if err != nil {
			return // it has answered
		}
		defer conn.CloseNow()
		conn.SetReadLimit(2 * large)
		if err := echo(r.Context(), conn); websocket.CloseStatus(err) != -1 {
			fmt.Printf("closed: %v\n", err)
		}
	}))
}

func echo(ctx context.Context, conn *websocket.Conn) error {
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		var code websocket.StatusCode
		if _, err := fmt.Sscanf(string(message[:min(len(message), 16)]), "close %d", &code); err == nil {
			return conn.Close(code, "as you say")
		}
		if err := conn.Write(ctx, kind, message); err != nil {
			return err
		}
	}
}

// wsClient sends messages, with and without compression, and has both sides close.
func wsClient(ctx context.Context, o options) error {
	for _, messages := range []struct {
		name string
		mode websocket.CompressionMode
	}{
		{"plain messages", websocket.CompressionDisabled},
		{"compressed messages", websocket.CompressionContextTakeover},
	} {
		if err := exchange(ctx, o, messages.mode); err != nil {
			return fmt.Errorf("%s: %w", messages.name, err)
		}
		passed(messages.name)
	}
	for _, code := range []websocket.StatusCode{websocket.StatusNormalClosure, websocket.StatusGoingAway, 4321} {
		if err := closedByServer(ctx, o, code); err != nil {
			return fmt.Errorf("close %d: %w", code, err)
		}
		passed(fmt.Sprintf("closed by the server with %d", code))
	}
	return nil
}

func dialWS(ctx context.Context, o options, mode websocket.CompressionMode) (*websocket.Conn, error) {
	config, err := clientTLS(o)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	conn, answer, err := websocket.Dial(ctx, "wss://"+o.gateway+o.path, &websocket.DialOptions{
		HTTPClient: client, Subprotocols: []string{"other.example.com", subprotocol}, CompressionMode: mode,
	})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(2 * large)
	isCompressed := strings.HasPrefix(answer.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate")
	if conn.Subprotocol() != subprotocol || isCompressed != (mode != websocket.CompressionDisabled) {
		return nil, fmt.Errorf("another agreement: %v", answer.Header)
	}
	return conn, nil
}

func exchange(ctx context.Context, o options, mode websocket.CompressionMode) error {
	conn, err := dialWS(ctx, o, mode)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	for _, sent := range []struct {
		kind websocket.MessageType
		text []byte
	}{
		{websocket.MessageText, []byte("gr\u00fc\u00df dich")},
		{websocket.MessageText, nil},
		{websocket.MessageBinary, []byte{0, 1, 0xfe, 0xff}},
		{websocket.MessageBinary, bytes.Repeat([]byte("0123456789abcdef"), large/16)},
	} {
		if err := conn.Write(ctx, sent.kind, sent.text); err != nil {
			return err
		}
		kind, text, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind != sent.kind || !bytes.Equal(text, sent.text) {
			return fmt.Errorf("%d bytes came back as %d others", len(sent.text), len(text))
		}
	}
	return ping(ctx, conn)
}

// ping sends a ping, waits for its answer, and closes. Nobody sends messages meanwhile.
func ping(ctx context.Context, conn *websocket.Conn) error {
	reading := conn.CloseRead(ctx)
	if err := conn.Ping(ctx); err != nil {
		return err
	}
	if reading.Err() != nil {
		return errors.New("the connection ended at a ping")
	}
	return conn.Close(websocket.StatusNormalClosure, "done")
}

func closedByServer(ctx context.Context, o options, code websocket.StatusCode) error {
	conn, err := dialWS(ctx, o, websocket.CompressionDisabled)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "close %d", code)); err != nil {
		return err
	}
	_, _, err = conn.Read(ctx)
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != code || closed.Reason != "as you say" {
		return fmt.Errorf("it ended otherwise: %w", err)
	}
	return nil
}
