package record_test

import (
	"context"
	"fmt"
	"os"

	"github.com/csiemu/csiemu/internal/record"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	store, err := record.Open(dir, record.Options{Sync: true})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	err = store.Put(ctx, "volumes", "vol-1", map[string]string{"state": "ready"})
	fmt.Println(err)
	damaged, err := store.Load(ctx, "volumes", func(id string, data []byte) error {
		fmt.Println(id, string(data))
		return nil
	})
	fmt.Println(len(damaged), err)

	_, err = record.Open(dir, record.Options{})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// vol-1 {"state":"ready"}
	// 0 <nil>
	// true
}
