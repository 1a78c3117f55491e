package attacher

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/journal/redact"
)

// attachFailed records why an attach failed and returns an error, so that it is
// tried again. Whether the driver's error is final does not matter: after any, the
// volume may be attached (the call before a retry may have succeeded), so once our
// finalizer is there, only a detach takes it away.
func (c *controller) attachFailed(ctx context.Context, a *attachment, why error) error {
	failed := &storagev1.VolumeError{Time: metav1.Now(), Message: short(why)}
	if s, is := status.FromError(why); is {
		code := int32(s.Code())
		failed.ErrorCode = &code
	}
	c.record(ctx, a, "/status/attachError", a.attachError, failed)
	return fmt.Errorf("attach: %w", why)
}

// detachFailed is attachFailed for a detach. Its error has no code, as in
// external-attacher.
func (c *controller) detachFailed(ctx context.Context, a *attachment, why error) error {
	failed := &storagev1.VolumeError{Time: metav1.Now(), Message: short(why)}
	c.record(ctx, a, "/status/detachError", a.detachError, failed)
	return fmt.Errorf("detach: %w", why)
}

// record writes an error where people and the controller-manager read it, unless it
// is there already. What was given up because this process ends is no failure.
func (c *controller) record(ctx context.Context, a *attachment, path string, recorded uint64, failed *storagev1.VolumeError) {
	if ctx.Err() != nil || (!c.Strict && recorded == errorDigest(failed)) {
		return
	}
	// The newest state is what the patch is for, if there was a write meanwhile.
	if newest, ok := c.latestAttachments.Get(a.name); ok && newest.uid != a.uid {
		return
	}
	if err := c.patchStatus(ctx, a, path, failed); err != nil {
		c.log.Warn("could not record a failure", "attachment", a.name, "failure", failed.Message, "error", err)
	}
}

// longest is the longest message that the API server takes in a VolumeError, in
// bytes.
const longest = 1024

// short is the text of an error, cut where the API server would refuse it.
func short(err error) string {
	const cut = "..."
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest-len(cut)], "") + cut
}

// clean takes the secrets of a request out of an error of the driver: it will be
// read by all who may see the VolumeAttachment.
func clean(request proto.Message, err error) error {
	text := redact.Text(request, err.Error())
	if text == err.Error() {
		return err
	}
	return cleaned{error: err, text: text}
}

// cleaned is an error with another text.
type cleaned struct {
	error
	text string
}

func (c cleaned) Error() string { return c.text }
func (c cleaned) Unwrap() error { return c.error }
