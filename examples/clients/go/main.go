// Sends a request to the gateway with the addon's certificate, and prints the response. With --every it goes on, and
// takes each new certificate and trust bundle without a restart.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// credentials has a client of the files in a directory, such as the mounted Secret that addon-signer-agent keeps.
type credentials struct {
	dir, known string
	client     *http.Client
}

// refresh makes a new client once the files have changed: a transport keeps its certificate and its connections.
func (c *credentials) refresh() error {
	certificate, err1 := os.ReadFile(c.dir + "/tls.crt")
	key, err2 := os.ReadFile(c.dir + "/tls.key")
	anchors, err3 := os.ReadFile(c.dir + "/ca.crt")
	found := string(certificate) + string(key) + string(anchors)
	if err := errors.Join(err1, err2, err3); err != nil || found == c.known {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(anchors) {
		return errors.New("ca.crt has no certificate")
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // with HTTP/2, and HTTPS_PROXY and NO_PROXY
	transport.TLSClientConfig = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.known, c.client = found, &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: last}
	fmt.Println("read the certificate and the trust bundle")
	return nil
}

// send prints the response. A refusal's body is the problem, which says why.
func send(client *http.Client, method, url, data string) error {
	request, err := http.NewRequest(method, url, strings.NewReader(data))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil { // also if the gateway does not trust the certificate
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 65536))
	if response.StatusCode >= 300 { // a redirect could send the body elsewhere, so none is followed
		return fmt.Errorf("%d %s", response.StatusCode, body)
	}
	fmt.Println(response.StatusCode, strings.TrimSpace(string(body)))
	return err
}

func main() {
	dir := flag.String("certificates", ".", "the `DIR` with tls.crt, tls.key and ca.crt")
	method := flag.String("method", "GET", "the `METHOD`")
	data := flag.String("data", "", "the `BODY`")
	every := flag.Duration("every", 0, "send a request every `2s`, for instance")
	flag.Parse()
	files := credentials{dir: *dir}
	for {
		err := files.refresh()
		if files.client != nil { // the old one while the files are being replaced
			err = errors.Join(err, send(files.client, *method, flag.Arg(0), *data))
		}
		if err != nil {
			fmt.Println("failed:", err)
		}
		if *every == 0 {
			os.Exit(map[bool]int{false: 1}[err == nil])
		}
		time.Sleep(*every)
	}
}
