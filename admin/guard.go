package admin

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Header is what requests that change something must carry, with the value 1. A
// page of another site cannot send it without being allowed to, which it never is.
const Header = "X-Csiemu-Admin"

// tokenField is the field of the page's forms in place of Header.
const tokenField = "token"

func newToken() string { return rand.Text() }

// protect sets what keeps other sites, and scripts that are not the page's own,
// out of browsers that show the page.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// checkHost refuses requests for another host, as they come from a browser whose
// page has its name resolve to this machine. Browsers have no Unix sockets.
func checkHost(r *http.Request) error {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "unix" {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if isLoopback(host) {
		return nil
	}
	return &httpError{http.StatusMisdirectedRequest, fmt.Sprintf("the host %q is not served: ask 127.0.0.1 or localhost", r.Host)}
}

// checkChange refuses requests that change something unless they come from a
// program that meant it, or from a form of the page.
func (s *Server) checkChange(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return &httpError{http.StatusForbidden, "the request comes from a page of another site"}
	}
	if r.Header.Get(Header) == "1" {
		return nil
	}
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		return &httpError{http.StatusForbidden, "a request that changes something needs the header " + Header + ": 1"}
	}
	if subtle.ConstantTimeCompare([]byte(r.PostFormValue(tokenField)), []byte(s.token)) != 1 {
		return &httpError{http.StatusForbidden, "the form is not of this process: load the page again"}
	}
	return nil
}

// maxBody bounds what a request may bring, in bytes.
const maxBody = 1 << 20
