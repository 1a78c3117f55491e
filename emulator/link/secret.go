package link

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// minSecret is the shortest secret that is taken, in bytes. Whoever can connect
// to an end sees its public key and may guess secrets at leisure, so that the
// secret has to be random, not a word.
const minSecret = 16

// errOtherSecret is what an end reports whose peer proves another key.
var errOtherSecret = errors.New("the other end does not have the same shared secret")

// SharedSecret returns the TLS configuration, for both ends, of a link between
// processes that know the same random secret of at least 16 bytes.
//
// Both derive one ed25519 key from the secret, present a certificate for it,
// and accept no other key. TLS 1.3 makes each prove that it has the private
// half. There are no names, no authorities and no dates to go wrong.
func SharedSecret(secret []byte) (*tls.Config, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("use the link's shared secret: it has %d bytes, and %d random ones are needed", len(secret), minSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "csiemu link, ed25519 key, version 1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the link's key: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	certificate, err := selfSigned(key)
	if err != nil {
		return nil, err
	}
	ours := key.Public().(ed25519.PublicKey)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAnyClientCert,
		// The key itself is compared below; there is no chain to verify.
		InsecureSkipVerify: true,
		// Every connection proves the key anew.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errOtherSecret
			}
			theirs, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !ours.Equal(theirs) {
				return errOtherSecret
			}
			return nil
		},
	}, nil
}

// selfSigned makes the certificate that carries the key. It is the same
// wherever it is made.
func selfSigned(key ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "csiemu link"},
		NotBefore:    time.Unix(0, 0).UTC(),
		// The date for "no end" of RFC 5280, 4.1.2.5.
		NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the link's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
