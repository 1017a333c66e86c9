package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bojand/ghz/runner"
	vegeta "github.com/tsenart/vegeta/v12/lib"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// warmUp opens the connections; nothing in it is measured.
const warmUp = 500 * time.Millisecond

// figure is what a load program measured. Calls are all that it made, also those before it measured.
type figure struct {
	Calls uint64  `json:"calls"`
	Rate  float64 `json:"rate"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
}

func say(calls uint64, rate float64, p50, p99 time.Duration) error {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return json.NewEncoder(os.Stdout).Encode(figure{calls, rate, us(p50), us(p99)})
}

// loadHTTP is vegeta, as fast as it can: each connection has an attacker with as many workers as it carries calls.
func loadHTTP(_ context.Context, o options) error {
	scheme, config := "http", (*tls.Config)(nil)
	if o.cert != "" {
		var err error
		if config, err = clientTLS(o); err != nil {
			return err
		}
		scheme = "https"
	}
	target := vegeta.Target{Method: http.MethodGet, URL: fmt.Sprintf("%s://%s%s", scheme, o.gateway, o.path)}
	if o.body > 0 {
		target.Method, target.Body = http.MethodPost, make([]byte, o.body)
	}
	clients := make([]*http.Client, o.connections)
	for i := range clients {
		clients[i] = httpClient(config, o)
	}
	before := attack(clients, target, o.rounds, warmUp)
	m := attack(clients, target, o.rounds, o.lasts)
	if before.Success < 1 || m.Success < 1 {
		return fmt.Errorf("%s: %v %v", target.URL, before.Errors, m.Errors)
	}
	return say(before.Requests+m.Requests, m.Throughput, m.Latencies.P50, m.Latencies.P99)
}

// httpClient has one connection at a time.
func httpClient(config *tls.Config, o options) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(o.over == "http1")
	protocols.SetHTTP2(o.over == "http2" && config != nil)
	protocols.SetUnencryptedHTTP2(o.over == "http2" && config == nil)
	transport := &http.Transport{
		TLSClientConfig: config, Protocols: protocols, MaxConnsPerHost: 1, DisableKeepAlives: o.reconnect,
	}
	return &http.Client{Transport: transport, Timeout: patience}
}

func attack(clients []*http.Client, target vegeta.Target, calls int, lasts time.Duration) *vegeta.Metrics {
	var all vegeta.Metrics
	var lock sync.Mutex
	var running sync.WaitGroup
	for _, client := range clients {
		running.Go(func() {
			workers := uint64(calls)
			attacker := vegeta.NewAttacker(vegeta.Client(client), vegeta.Workers(workers), vegeta.MaxWorkers(workers))
			for result := range attacker.Attack(vegeta.NewStaticTargeter(target), vegeta.Rate{}, lasts, "") {
				lock.Lock()
				all.Add(result)
				lock.Unlock()
			}
		})
	}
	running.Wait()
	all.Close()
	return &all
}

// loadGRPC is ghz, as fast as it can. It opens connections with its first calls, so those are not counted.
func loadGRPC(_ context.Context, o options) error {
	protoset, err := healthProtoset()
	if err != nil {
		return err
	}
	defer os.Remove(protoset)
	settings := []runner.Option{
		runner.WithProtoset(protoset),
		runner.WithDataFromJSON("{}"),
		runner.WithConnections(uint(o.connections)),
		runner.WithConcurrency(uint(o.connections * o.rounds)),
		runner.WithRunDuration(warmUp + o.lasts),
		runner.WithDurationStopAction("wait"),
	}
	if o.cert == "" {
		settings = append(settings, runner.WithInsecure(true))
	} else {
		settings = append(settings, runner.WithCertificate(o.cert, o.key), runner.WithRootCertificate(o.ca))
	}
	report, err := runner.Run(health.Health_Check_FullMethodName[1:], o.gateway, settings...)
	if err != nil {
		return err
	}
	if len(report.ErrorDist) > 0 {
		return fmt.Errorf("%s: %v", o.gateway, report.ErrorDist)
	}
	return sayGRPC(report)
}

// sayGRPC counts the calls that ended after the first ones had opened all connections.
func sayGRPC(report *runner.Report) error {
	ended := func(a, b runner.ResultDetail) int { return a.Timestamp.Compare(b.Timestamp) }
	calls := slices.SortedFunc(slices.Values(report.Details), ended)
	if len(calls) == 0 {
		return errors.New("no call ended")
	}
	from, last := calls[0].Timestamp.Add(warmUp), calls[len(calls)-1].Timestamp
	var latencies []time.Duration
	for _, call := range calls {
		if call.Timestamp.After(from) {
			latencies = append(latencies, call.Latency)
		}
	}
	slices.Sort(latencies)
	at := func(percent int) time.Duration { return latencies[len(latencies)*percent/100] }
	return say(report.Count, float64(len(latencies))/last.Sub(from).Seconds(), at(50), at(99))
}

// healthProtoset is the file by which ghz knows the service of gRPC's health checks.
func healthProtoset() (string, error) {
	file := protodesc.ToFileDescriptorProto(health.File_grpc_health_v1_health_proto)
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
	if err != nil {
		return "", err
	}
	written, err := os.CreateTemp("", "*.protoset")
	if err != nil {
		return "", err
	}
	_, err = written.Write(set)
	return written.Name(), errors.Join(err, written.Close())
}
