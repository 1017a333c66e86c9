// Command vault is Vault's core and HTTP API with the secrets engine pki and the auth method kubernetes alone. Vault's
// own main has all other plugins and storages too, and takes several times as long to build. Its storage is its memory.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net/http"

	"github.com/hashicorp/go-hclog"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault/builtin/logical/pki"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// none is Vault's list of plugins; those that it has are given to the core itself.
type none struct{}

func (none) Contains(string, consts.PluginType) bool                           { return false }
func (none) Get(string, consts.PluginType) (func() (interface{}, error), bool) { return nil, false }
func (none) Keys(consts.PluginType) []string                                   { return nil }
func (none) IsBuiltinEntPlugin(string, consts.PluginType) bool                 { return false }
func (none) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Unknown, false
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal("vault: ", err)
	}
	return value
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8200", "address to listen on")
	cert := flag.String("cert", "tls.crt", "PEM file of the server's certificate")
	key := flag.String("key", "tls.key", "PEM file of its key")
	flag.Parse()
	logger := hclog.New(&hclog.LoggerOptions{Name: "vault"})
	core := must(vault.NewCore(&vault.CoreConfig{
		Physical:           must(inmem.NewInmem(nil, logger)),
		StorageType:        "inmem",
		LogicalBackends:    map[string]logical.Factory{"pki": pki.Factory},
		CredentialBackends: map[string]logical.Factory{"kubernetes": kubernetes.Factory},
		BuiltinRegistry:    none{},
		DisableMlock:       true,
		Logger:             logger,
	}))
	listener := configutil.Listener{MaxRequestDuration: vault.DefaultMaxRequestDuration}
	api := vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: &listener})
	pair := must(tls.LoadX509KeyPair(*cert, *key))
	socket := must(tls.Listen("tcp", *listen, &tls.Config{Certificates: []tls.Certificate{pair}}))
	log.Fatal("vault: ", http.Serve(socket, api))
}
