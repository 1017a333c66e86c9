package main

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

// runH2spec runs all of h2spec. Its report is on stdout; a case that fails does not fail the program.
func runH2spec(_ context.Context, o options) error {
	host, text, err := net.SplitHostPort(o.gateway)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	_, err = h2spec.Run(&config.Config{
		Host: host, Port: port, Path: o.path,
		Timeout:      2 * time.Second,
		MaxHeaderLen: 4000,
		Strict:       true,
		TLS:          true,
		Insecure:     true, // it knows only the system's CAs
		CertFile:     o.cert,
		CertKeyFile:  o.key,
	})
	return err
}
