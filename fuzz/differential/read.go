// Reads requests and certificates with crypto/x509: lines of `differential` on standard input, what was read on
// standard output. The argument is the CA's certificate.
package main

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
)

type mutant struct {
	Number      int    `json:"number"`
	Serving     bool   `json:"serving"`
	Request     []byte `json:"request"`
	Certificate []byte `json:"certificate"`
}

type reading struct {
	Error string   `json:"error,omitempty"`
	CN    []string `json:"cn"`
	O     []string `json:"o"`
	OU    []string `json:"ou"`
	Key   []byte   `json:"key"`
	DNS   []string `json:"dns"`
	IP    []string `json:"ip"`
}

func read(subject pkix.Name, key []byte, dns []string, ips []net.IP) reading {
	r := reading{CN: []string{}, O: []string{}, OU: []string{}, Key: key, DNS: []string{}, IP: []string{}}
	for _, attribute := range subject.Names {
		text := fmt.Sprint(attribute.Value)
		switch attribute.Type.String() {
		case "2.5.4.3":
			r.CN = append(r.CN, text)
		case "2.5.4.10":
			r.O = append(r.O, text)
		case "2.5.4.11":
			r.OU = append(r.OU, text)
		}
	}
	r.DNS = append(r.DNS, dns...)
	for _, ip := range ips {
		r.IP = append(r.IP, ip.String())
	}
	return r
}

func request(text []byte) (reading, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return reading{}, errors.New("not one PEM block")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return reading{}, err
	}
	if err := csr.CheckSignature(); err != nil {
		return reading{}, err
	}
	return read(csr.Subject, csr.RawSubjectPublicKeyInfo, csr.DNSNames, csr.IPAddresses), nil
}

func certificate(der []byte, serving bool, roots *x509.CertPool) (reading, error) {
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return reading{}, err
	}
	purpose := x509.ExtKeyUsageClientAuth
	if serving {
		purpose = x509.ExtKeyUsageServerAuth
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{purpose}}); err != nil {
		return reading{}, err
	}
	return read(leaf.Subject, leaf.RawSubjectPublicKeyInfo, leaf.DNSNames, leaf.IPAddresses), nil
}

func orError(r reading, err error) reading {
	if err != nil {
		return reading{Error: err.Error()}
	}
	return r
}

func main() {
	anchor, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(anchor)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var m mutant
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			panic(err)
		}
		answer := map[string]reading{
			"request":     orError(request(m.Request)),
			"certificate": orError(certificate(m.Certificate, m.Serving, roots)),
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}
