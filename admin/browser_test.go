package admin_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/testenv"
)

// screenshotsVariable names a directory for pictures of the pages, for people who
// change how they look.
const screenshotsVariable = "CSIEMU_SCREENSHOTS"

// browser is a tab of a headless browser. What its console says against a page is
// in problems.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path := testenv.NeedChromium(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, cancelTab := chromedp.NewContext(ctx)
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx)) // it starts
	messages := chromedp.Console(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for m, err := range messages {
			if err != nil {
				return // the browser ends
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.Type == chromedp.ConsoleException {
				b.problem(m.Text + " " + m.URL)
			}
		}
	})
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancelTab(); reader.Wait() }) // it takes its files away
	return b
}

func (b *browser) problem(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

func value[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, a)
	require.NoError(b.t, err)
	return v
}

func visible(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(chromedp.CSS(selector))
}

// text is the text of what a selector finds, once something is there.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return value(b, chromedp.Text(chromedp.CSS(selector)))
}

// sees waits until a text is in what a selector finds.
func (b *browser) sees(selector, text string) {
	b.t.Helper()
	have := ""
	require.Eventually(b.t, func() bool {
		script := fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector)
		have, _ = chromedp.Run(b.ctx, chromedp.Evaluate[string](script)) // the page may be on its way
		return strings.Contains(have, text)
	}, patience, tick, "%q is not in %s", text, selector)
}

// fits checks that the page is not wider than the window.
func (b *browser) fits(width int64) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(width, 900))
	require.LessOrEqual(b.t, value(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)), width, "the page scrolls sideways")
}

// media is what the browser is asked to prefer.
func (b *browser) media(features ...*emulation.MediaFeature) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	require.NoError(b.t, err)
}

// picture takes pictures of the whole page, narrow and wide, light and dark.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv(screenshotsVariable)
	if dir == "" {
		return
	}
	for width, suffix := range map[int64]string{1280: "wide", 400: "narrow"} {
		for _, scheme := range []string{"light", "dark"} {
			b.media(&emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme})
			b.run(chromedp.EmulateViewport(width, 900))
			png := value(b, chromedp.FullScreenshot(100))
			require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+"-"+suffix+"-"+scheme+".png"), png, 0o600))
		}
	}
	b.media()
	b.run(chromedp.EmulateViewport(1280, 900))
}

func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	d := start(t)
	b := openBrowser(t)
	b.run(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(d.url+"/"), visible("#live"))
	require.Contains(t, b.text("#calls"), "No call yet")
	b.picture("empty")

	// A call appears by itself.
	id := d.create("pvc-orders")
	b.sees("#calls", "CreateVolume")
	b.sees("#volumes", "pvc-orders")

	// A fault is added by the form, and hits.
	b.run(
		chromedp.SendKeys(chromedp.CSS("#rule"), "ControllerPublishVolume: 2*return(UNAVAILABLE)->ok"),
		chromedp.Submit(chromedp.CSS("form.add")),
		visible("#clear"), visible("#live"),
	)
	require.Len(t, d.emulator.Faults(), 1)
	for range 2 {
		_, err := d.attach(id, "node-1")
		require.Error(t, err)
	}
	b.sees("#faults", "fired 2×")
	d.up(id)
	b.sees("#calls", "3 attempts")
	b.sees("#attachments", "published")
	d.populate()
	b.sees("#calls", "CreateSnapshot")
	b.picture("home")
	b.run(chromedp.Click(chromedp.CSS("#as-test summary")))
	b.sees("#test-text", "ControllerPublishVolume{code=OK,node=node-1}")
	b.picture("test")
	b.run(chromedp.Click(chromedp.CSS("#copy")))
	b.sees("#copy", "Copied")
	d.create("pvc-later")
	b.sees("#volumes", "pvc-later")
	b.sees("#test-text", "pvc-later")
	for _, width := range []int64{400, 1280} {
		b.fits(width)
	}

	// All faults are cleared.
	b.run(chromedp.Click(chromedp.CSS("#clear")))
	b.sees("#faults", "No fault")
	require.Empty(t, d.emulator.Faults())

	// A fault that cannot be is explained.
	b.run(
		chromedp.SendKeys(chromedp.CSS("#rule"), "CreateVolume: explode"), chromedp.Submit(chromedp.CSS("form.add")), visible("[role=alert]"),
	)
	require.Contains(t, b.text("[role=alert]"), `"explode" is none of`)
	// The browser counts the answer of the form, 400, among the problems.
	b.mu.Lock()
	require.Len(t, b.problems, 1)
	require.Contains(t, b.problems[0], "400")
	b.problems = nil
	b.mu.Unlock()

	// The life of a volume.
	b.run(chromedp.Navigate(d.url+"/volumes/"+id), visible(".timeline"), visible("#live"))
	b.sees(".timeline thead", "controller")
	b.sees(".timeline tbody", "NodePublishVolume")
	b.picture("volume")
	_, err := d.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
	require.NoError(t, err)
	b.sees(".timeline tbody", "ControllerGetVolume")
	for _, width := range []int64{400, 1280} {
		b.fits(width)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.problems)
}

// populate makes what a busy driver has.
func (d *driver) populate() {
	d.t.Helper()
	ctx, attached := d.t.Context(), ""
	for _, name := range []string{"pvc-0b6f2a34-77a1-4a52-9f0f-3f3d0a3b7a11", "pvc-cache", "pvc-logs"} {
		id := d.create(name)
		if name == "pvc-cache" {
			attached = id
			_, err := d.attach(id, "node-2")
			require.NoError(d.t, err)
			require.NoError(d.t, d.emulator.SetVolumeHealth(ctx, id, backends.Condition{Status: backends.Degraded, Reason: "SlowDisk", Message: "reads take long"}))
		}
		_, err := d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap-" + name, SourceVolumeId: id})
		require.NoError(d.t, err)
	}
	_, err := d.emulator.InjectText(ctx, `NodeStageVolume{node=node-2}: 10%return(INTERNAL,"the array is on fire")`)
	require.NoError(d.t, err)
	_, err = d.emulator.InjectText(ctx, `Volume{name=pvc-logs}: health(INACCESSIBLE,"PathDown")`)
	require.NoError(d.t, err)
	for range 2 {
		_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: attached})
		require.Error(d.t, err)
	}
	_, err = d.other.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "no-such-volume", StagingTargetPath: d.t.TempDir(), VolumeCapability: capability()})
	require.Error(d.t, err)
}
