package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"

	"github.com/csiemu/csiemu/backends"
)

// ErrUnreachable is returned when nobody answers at an address.
var ErrUnreachable = errors.New("no csiemu answers")

// Client asks an admin endpoint. It is safe for concurrent use.
type Client struct {
	address string
	base    string
	http    *http.Client
}

// NewClient makes a client for an address (ParseAddress); Close it. It connects
// when it is asked something.
func NewClient(address string) (*Client, error) {
	e, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	c := &Client{address: address, base: "http://" + e.Address, http: &http.Client{Transport: transport}}
	if e.Network == "unix" {
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", e.Address)
		}
	}
	return c, nil
}

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for the JSON at a path, such as /v1/volumes, and decodes it into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	return c.do(ctx, http.MethodGet, path, nil, v)
}

// Post sends JSON to a path and decodes the answer into v.
func (c *Client) Post(ctx context.Context, path string, body, v any) error {
	return c.do(ctx, http.MethodPost, path, body, v)
}

// Put sends JSON to a path.
func (c *Client) Put(ctx context.Context, path string, body any) error {
	return c.do(ctx, http.MethodPut, path, body, nil)
}

// Delete deletes what is at a path.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.do(ctx, http.MethodDelete, path, nil, nil)
}

// Lines streams the lines of JSON at a path until ctx ends, which is no error, or
// the server does. A line is valid until the next one.
func (c *Client) Lines(ctx context.Context, path string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		answer, err := c.ask(ctx, http.MethodGet, path, nil)
		if err != nil {
			if ctx.Err() == nil {
				yield(nil, err)
			}
			return
		}
		defer answer.Body.Close()
		reader := bufio.NewReader(answer.Body)
		for {
			line, err := reader.ReadBytes('\n')
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				if !yield(line, nil) {
					return
				}
			default:
				yield(nil, fmt.Errorf("the csiemu at %s has ended: %w", c.address, err))
				return
			}
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, body, v any) error {
	answer, err := c.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if v == nil {
		_, err := io.Copy(io.Discard, answer.Body)
		return err
	}
	if err := json.NewDecoder(answer.Body).Decode(v); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

// ask returns a good answer, whose body is to be closed, or the error that it
// told.
func (c *Client) ask(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request of %s: %w", path, err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	request.Header.Set(Header, "1")
	answer, err := c.http.Do(request)
	var notThere *net.OpError
	switch {
	case errors.As(err, &notThere) && notThere.Op == "dial":
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, c.address, notThere.Err)
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", c.address, err)
	case answer.StatusCode < http.StatusBadRequest:
		return answer, nil
	}
	defer answer.Body.Close()
	var told errorBody
	if err := json.NewDecoder(answer.Body).Decode(&told); err != nil || told.Error == "" {
		return nil, fmt.Errorf("ask %s: what answers at %s is no csiemu: %s", path, c.address, answer.Status)
	}
	return nil, &toldError{told.Error, answer.StatusCode}
}

// toldError is a failure that the server told. Its kind is one of backends'.
type toldError struct {
	text   string
	status int
}

func (e *toldError) Error() string { return e.text }

// Is tells the kinds apart that the status tells apart.
func (e *toldError) Is(kind error) bool {
	switch e.status {
	case http.StatusBadRequest:
		return kind == backends.ErrInvalid
	case http.StatusNotFound:
		return kind == backends.ErrNotFound
	case http.StatusConflict:
		return kind == backends.ErrPrecondition
	}
	return false
}
