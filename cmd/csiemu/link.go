package main

import (
	"os"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/link"
)

// link reads how array and nodes in different processes find each other.
func (f *serveFlags) link() (emulator.Link, error) {
	services := emulator.Services(f.services)
	switch services {
	case emulator.AllServices, emulator.ControllerService, emulator.NodeService:
	default:
		return emulator.Link{}, usage("read --services: %q is none: give all, controller or node", f.services)
	}
	isNode := services == emulator.NodeService
	switch {
	case isNode && len(f.capacity) > 0:
		return emulator.Link{}, usage("--capacity is for the array: give it to the process that has --array-listen")
	case isNode && f.array == "":
		return emulator.Link{}, usage("--services node needs its array: give --array unix://PATH.sock or tcp://HOST:PORT")
	case !isNode && f.array != "":
		return emulator.Link{}, usage("--array is for --services node only: an array listens at --array-listen")
	case isNode && f.arrayListen != "":
		return emulator.Link{}, usage("--array-listen is for an array only: a node finds its array at --array")
	case services == emulator.ControllerService && f.arrayListen == "":
		return emulator.Link{}, usage("an array alone needs a place where its nodes find it: give --array-listen unix://PATH.sock or tcp://HOST:PORT")
	case services == emulator.ControllerService && len(f.nodes)+len(f.topology) > 0:
		return emulator.Link{}, usage("--node and --topology are for nodes: give them to the processes with --services node")
	case f.array == "" && f.arrayListen == "" && f.secretFile != "":
		return emulator.Link{}, usage("--secret-file is for array and nodes in separate processes: give --array-listen or --array too")
	case f.array == "" && f.arrayListen == "":
		return emulator.Link{}, nil
	case f.secretFile == "":
		return emulator.Link{}, usage("array and nodes need a shared secret: give --secret-file FILE")
	}
	if _, err := link.ParseEndpoint(f.arrayListen + f.array); err != nil { // one of the two is given
		return emulator.Link{}, usage("read --array-listen or --array: %w", err)
	}
	secret, err := os.ReadFile(f.secretFile)
	if err != nil {
		return emulator.Link{}, usage("read --secret-file: %w", err)
	}
	tls, err := link.SharedSecret(secret)
	if err != nil {
		return emulator.Link{}, usage("use --secret-file %s: %w", f.secretFile, err)
	}
	return emulator.Link{Listen: f.arrayListen, Array: f.array, TLS: tls}, nil
}
