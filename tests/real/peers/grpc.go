package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// grpcServer is the server of gRPC's interoperability tests.
func grpcServer(_ context.Context, o options) error {
	listener, err := listen(o)
	if err != nil {
		return err
	}
	config, err := serverTLS(o)
	if err != nil {
		return err
	}
	var settings []grpc.ServerOption
	if config != nil {
		settings = append(settings, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(settings...)
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	return server.Serve(listener)
}

func dialGRPC(o options) (*grpc.ClientConn, error) {
	config, err := clientTLS(o)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(o.gateway, grpc.WithTransportCredentials(credentials.NewTLS(config)))
}

// grpcCases are the cases that every server must pass (interop-test-descriptions.md of grpc/grpc). A case that fails
// ends the program by itself, with its reason on stderr.
func grpcCases(conn *grpc.ClientConn) []struct {
	name string
	run  func(context.Context)
} {
	client := testgrpc.NewTestServiceClient(conn)
	unimplemented := testgrpc.NewUnimplementedServiceClient(conn)
	type do = func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)
	with := func(do do) func(context.Context) { return func(ctx context.Context) { do(ctx, client) } }
	return []struct {
		name string
		run  func(context.Context)
	}{
		{"empty_unary", with(interop.DoEmptyUnaryCall)},
		{"large_unary", with(interop.DoLargeUnaryCall)},
		{"client_streaming", with(interop.DoClientStreaming)},
		{"server_streaming", with(interop.DoServerStreaming)},
		{"ping_pong", with(interop.DoPingPong)},
		{"empty_stream", with(interop.DoEmptyStream)},
		{"cancel_after_begin", with(interop.DoCancelAfterBegin)},
		{"cancel_after_first_response", with(interop.DoCancelAfterFirstResponse)},
		{"timeout_on_sleeping_server", with(interop.DoTimeoutOnSleepingServer)},
		{"status_code_and_message", with(interop.DoStatusCodeAndMessage)},
		{"special_status_message", with(interop.DoSpecialStatusMessage)},
		{"custom_metadata", with(interop.DoCustomMetadata)},
		{"unimplemented_method", func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, conn) }},
		{"unimplemented_service", func(ctx context.Context) { interop.DoUnimplementedService(ctx, unimplemented) }},
	}
}

// grpcClient runs all cases, as often as it was told side by side, on one connection.
func grpcClient(ctx context.Context, o options) error {
	conn, err := dialGRPC(o)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, one := range grpcCases(conn) {
		var running sync.WaitGroup
		for range o.rounds {
			running.Go(func() { one.run(ctx) })
		}
		running.Wait()
		passed(one.name)
	}
	return nil
}

// grpcSoak plays ping-pong for as long as it was told, as often side by side; each player at least once.
func grpcSoak(ctx context.Context, o options) error {
	conn, err := dialGRPC(o)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := testgrpc.NewTestServiceClient(conn)
	end := time.Now().Add(o.lasts)
	played := make([]int, o.rounds)
	var running sync.WaitGroup
	for player := range o.rounds {
		running.Go(func() {
			for played[player] == 0 || time.Now().Before(end) {
				interop.DoPingPong(ctx, client)
				played[player]++
			}
		})
	}
	running.Wait()
	total := 0
	for _, games := range played {
		total += games
	}
	passed(fmt.Sprintf("ping_pong of %d players for %v: %d games", o.rounds, o.lasts, total))
	return nil
}
