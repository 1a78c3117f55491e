package step_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/step"
)

const name = "array.volume.ready"

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	require.NoError(t, step.Done(t.Context(), name))
}

func TestTheListenerOfTheContextIsTold(t *testing.T) {
	t.Parallel()
	var told []string
	ctx := step.With(t.Context(), func(_ context.Context, name string) error {
		told = append(told, name)
		return nil
	})
	require.NoError(t, step.Done(context.WithoutCancel(ctx), name), "an undo has the listener too")
	require.NoError(t, step.Done(t.Context(), name), "another call has not")
	require.Equal(t, []string{name}, told)
}

func TestAnErrorIsThatOfThePoint(t *testing.T) {
	t.Parallel()
	errPartial := errors.New("partial effect")
	ctx := step.With(t.Context(), func(context.Context, string) error { return errPartial })
	require.ErrorIs(t, step.Done(ctx, name), errPartial)
}

func TestListenersOfOuterContextsGoOn(t *testing.T) {
	t.Parallel()
	var told []string
	var fail error
	listen := func(who string) step.Listener {
		return func(context.Context, string) error {
			told = append(told, who)
			if who == "inner" {
				return fail
			}
			return nil
		}
	}
	ctx := step.With(step.With(t.Context(), listen("outer")), listen("inner"))
	require.NoError(t, step.Done(ctx, name))
	require.Equal(t, []string{"inner", "outer"}, told)
	fail = errors.New("stop here")
	require.ErrorIs(t, step.Done(ctx, name), fail)
	require.Equal(t, []string{"inner", "outer", "inner"}, told)
}

func TestFind(t *testing.T) {
	t.Parallel()
	s, ok := step.Find(name)
	require.True(t, ok)
	require.Equal(t, name, s.Name)
	_, ok = step.Find("array.volume")
	require.False(t, ok)
}

func TestEveryStepIsDescribed(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z]+(\.[a-z]+){1,2}$`)
	seen := map[string]bool{}
	for _, s := range step.All() {
		require.Regexp(t, form, s.Name)
		require.False(t, seen[s.Name], "%s is listed twice", s.Name)
		seen[s.Name] = true
		require.Regexp(t, `^[A-Z].*[a-z]\.$`, s.After, s.Name)
		require.NotEmpty(t, s.During, s.Name)
	}
}

// TestStepsAndSourcesAgree reads the sources of the whole module: what they call
// Done with is listed, and what is listed is in them.
func TestStepsAndSourcesAgree(t *testing.T) {
	t.Parallel()
	listed, passed := map[string]bool{}, map[string]bool{}
	for _, s := range step.All() {
		listed[s.Name] = true
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.ToSlash(path), "internal/step/names.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := literal(n); ok && listed[text] {
				passed[text] = true
			}
			if call, ok := n.(*ast.CallExpr); ok && isDone(call) && len(call.Args) == 2 {
				if text, ok := literal(call.Args[1]); ok && !listed[text] {
					t.Errorf("%s calls step.Done with %q, which is not listed", path, text)
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	for name := range listed {
		require.True(t, passed[name], "%s is listed, and no code passes it", name)
	}
}

func literal(n ast.Node) (string, bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

func isDone(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Done" {
		return false
	}
	of, ok := f.X.(*ast.Ident)
	return ok && of.Name == "step"
}

// BenchmarkDone is what each point costs while nobody listens, in a context as
// deep as that of a call.
func BenchmarkDone(b *testing.B) {
	ctx := b.Context()
	type deep int
	for i := range 10 {
		ctx = context.WithValue(ctx, deep(i), i)
	}
	for b.Loop() {
		if err := step.Done(ctx, name); err != nil {
			b.Fatal(err)
		}
	}
}
