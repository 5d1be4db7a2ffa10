// Decodes recordings with the official library, for `cargo xtask bench ftdc` to compare with. The arguments and the
// output are those of crates/ftdc/examples/decode_speed.rs, which says what they mean:
//
//	ftdc-go time PASSES FILE...
//	ftdc-go digests FILE...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mongodb/ftdc"
)

type result struct {
	Seconds         []float64 `json:"seconds"`
	CompressedBytes int64     `json:"compressed_bytes"`
	Samples         int64     `json:"samples"`
	Values          int64     `json:"values"`
	Sum             int64     `json:"sum"`
	PeakKiB         int64     `json:"peak_kib"`
}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("ftdc-go time PASSES FILE... | digests FILE..."))
	}
	switch os.Args[1] {
	case "time":
		passes, err := strconv.Atoi(os.Args[2])
		fail(err)
		measure(passes, os.Args[3:])
	case "digests":
		digests(os.Args[2:])
	default:
		fail(fmt.Errorf("no such command: %s", os.Args[1]))
	}
}

// chunks calls each for every chunk of a file.
func chunks(path string, each func(*ftdc.Chunk)) {
	file, err := os.Open(path)
	fail(err)
	defer file.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	iterator := ftdc.ReadChunks(ctx, file)
	defer iterator.Close()
	for iterator.Next() {
		each(iterator.Chunk())
	}
	fail(iterator.Err())
}

// measure times the library's own way: every chunk with all its values in memory, and a sum over them.
func measure(passes int, paths []string) {
	var last result
	var seconds []float64
	for pass := 0; pass < passes; pass++ {
		last = result{}
		start := time.Now()
		for _, path := range paths {
			stat, err := os.Stat(path)
			fail(err)
			last.CompressedBytes += stat.Size()
			chunks(path, func(chunk *ftdc.Chunk) {
				last.Samples += int64(chunk.Size())
				for _, metric := range chunk.Metrics {
					last.Values += int64(len(metric.Values))
					for _, value := range metric.Values {
						last.Sum += value
					}
				}
			})
		}
		seconds = append(seconds, time.Since(start).Seconds())
	}
	last.Seconds = seconds
	last.PeakKiB = peakKiB()
	fail(json.NewEncoder(os.Stdout).Encode(last))
}

func digests(paths []string) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	number := 0
	for _, path := range paths {
		chunks(path, func(chunk *ftdc.Chunk) {
			for place, metric := range chunk.Metrics {
				first := int64(0)
				if len(metric.Values) > 0 {
					first = metric.Values[0]
				}
				absolute, relative := uint64(0xcbf29ce484222325), uint64(0xcbf29ce484222325)
				for _, value := range metric.Values {
					absolute, relative = hash(absolute, value), hash(relative, value-first)
				}
				fmt.Fprintf(out, "%d %d - %016x %016x\n", number, place, absolute, relative)
			}
			number++
		})
	}
}

// hash goes on with FNV-1a over the eight bytes of a value.
func hash(hash uint64, value int64) uint64 {
	for shift := 0; shift < 64; shift += 8 {
		hash = (hash ^ (uint64(value) >> shift & 0xff)) * 0x100000001b3
	}
	return hash
}

// peakKiB is the most memory this process had resident (Linux; 0 elsewhere).
func peakKiB() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib
		}
	}
	return 0
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "ftdc-go:", err)
		os.Exit(2)
	}
}
