package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// httpServer is Go's own server with a few handlers. It says on stdout what has arrived.
func httpServer(_ context.Context, o options) error {
	listener, err := listen(o)
	if err != nil {
		return err
	}
	handlers := http.NewServeMux()
	handlers.HandleFunc("POST /upload", upload)
	handlers.HandleFunc("POST /unread", unread)
	handlers.HandleFunc("GET /download", download)
	handlers.HandleFunc("GET /events", events)
	handlers.HandleFunc("POST /api/v1/write", remoteWrite)
	handlers.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Proto, r.URL) })
	return http.Serve(listener, handlers)
}

func upload(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%d bytes\n", n)
}

// unread answers before it has read anything.
func unread(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }

// download sends as many zeroes as it is asked for.
func download(w http.ResponseWriter, r *http.Request) {
	left, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(left, 10))
	for zeroes := make([]byte, 64<<10); left > 0; left -= int64(len(zeroes)) {
		if _, err := w.Write(zeroes[:min(left, int64(len(zeroes)))]); err != nil {
			return
		}
	}
}

// events sends an event at once, and no other for longer than any client of a test waits.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: first\n\n")
	http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-time.After(time.Hour):
	}
}

// remoteWrite takes what Prometheus sends. The query of the URL says which of its senders it is.
func remoteWrite(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	h := r.Header
	fmt.Printf("remote write to %s: %s %s of cluster %s, %d bytes\n", r.URL.RawQuery, h.Get("Content-Encoding"),
		h.Get("X-Prometheus-Remote-Write-Version"), h.Get("X-Addon-Signer-Cluster"), n)
	w.WriteHeader(http.StatusNoContent)
}
