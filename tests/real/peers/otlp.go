package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // registers it
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// receiver refuses the first request, with a pause after which the sender may try again, and then counts points.
type receiver struct {
	collector.UnimplementedMetricsServiceServer
	requests atomic.Int64
}

func (r *receiver) isFirst() bool { return r.requests.Add(1) == 1 }

func (r *receiver) received(over string, request *collector.ExportMetricsServiceRequest) {
	for _, resource := range request.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, metric := range scope.Metrics {
				fmt.Printf("received over %s: %s = %d\n", over, metric.Name, metric.GetSum().DataPoints[0].GetAsInt())
			}
		}
	}
}

// Export is OTLP over gRPC. The pause is in the details of the status.
func (r *receiver) Export(
	_ context.Context, request *collector.ExportMetricsServiceRequest,
) (*collector.ExportMetricsServiceResponse, error) {
	if r.isFirst() {
		pause := &errdetails.RetryInfo{RetryDelay: durationpb.New(10 * time.Millisecond)}
		// RESOURCE_EXHAUSTED is tried again only if the details arrive.
		refused, err := status.New(codes.ResourceExhausted, "later").WithDetails(pause)
		if err != nil {
			return nil, err
		}
		return nil, refused.Err()
	}
	r.received("grpc", request)
	return &collector.ExportMetricsServiceResponse{}, nil
}

// ServeHTTP is OTLP over HTTP. The pause is a header.
func (r *receiver) ServeHTTP(w http.ResponseWriter, asked *http.Request) {
	if r.isFirst() {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	request := &collector.ExportMetricsServiceRequest{}
	unzipped, err := gzip.NewReader(asked.Body)
	if err == nil {
		var body []byte
		if body, err = io.ReadAll(unzipped); err == nil {
			err = proto.Unmarshal(body, request)
		}
	}
	if err != nil || asked.URL.Path != "/v1/metrics" {
		http.Error(w, fmt.Sprintf("%s: %v", asked.URL.Path, err), http.StatusBadRequest)
		return
	}
	r.received("http", request)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// otlpReceive is a receiver of OTLP.
func otlpReceive(_ context.Context, o options) error {
	listener, err := listen(o)
	if err != nil {
		return err
	}
	if o.over == "http" {
		var protocols http.Protocols
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		server := http.Server{Handler: &receiver{}, Protocols: &protocols}
		return server.Serve(listener)
	}
	server := grpc.NewServer()
	collector.RegisterMetricsServiceServer(server, &receiver{})
	return server.Serve(listener)
}

// retries are quicker than the exporters' own, so that the receiver's pause counts.
var retries = struct {
	Enabled                                      bool
	InitialInterval, MaxInterval, MaxElapsedTime time.Duration
}{true, time.Millisecond, time.Second, patience}

func exporter(ctx context.Context, o options) (metric.Exporter, error) {
	config, err := clientTLS(o)
	if err != nil {
		return nil, err
	}
	switch o.over {
	case "grpc":
		return otlpmetricgrpc.New(ctx,
			otlpmetricgrpc.WithEndpoint(o.gateway),
			otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(config)),
			otlpmetricgrpc.WithCompressor("gzip"),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig(retries)))
	case "http":
		return otlpmetrichttp.New(ctx,
			otlpmetrichttp.WithEndpoint(o.gateway),
			otlpmetrichttp.WithURLPath(o.path),
			otlpmetrichttp.WithTLSClientConfig(config),
			otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig(retries)))
	default:
		return nil, errors.New("--over is neither grpc nor http")
	}
}

// otlpSend counts to 42 and exports that by OpenTelemetry's SDK.
func otlpSend(ctx context.Context, o options) error {
	exporter, err := exporter(ctx, o)
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(exporter)))
	counter, err := provider.Meter("peers").Int64Counter("answers")
	if err != nil {
		return err
	}
	counter.Add(ctx, 42)
	if err := provider.ForceFlush(ctx); err != nil {
		return err
	}
	passed("exported over " + o.over)
	return exporter.Shutdown(ctx)
}
