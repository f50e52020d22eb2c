// goroutines STEPS PACE_MS: in every step eight goroutines exchange numbers through channels, share a map under a mutex and let
// the garbage collector run. The lines depend on the steps alone.
package main

import "C" // links it with libc, as most programs are that use the network or CUDA: a preload reaches no other

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 29
	return x
}

func main() {
	steps, _ := strconv.Atoi(os.Args[1])
	pace, _ := strconv.Atoi(os.Args[2])
	const workers = 8
	var channels [workers + 1]chan uint64
	for i := range channels {
		channels[i] = make(chan uint64, i%3)
	}
	seen := map[uint64]int{}
	var lock sync.Mutex
	for i := 0; i < workers; i++ {
		go func(number int) {
			for value := range channels[number] {
				garbage := make([]uint64, 5000)
				for k := range garbage {
					garbage[k] = mix(value + uint64(k))
				}
				lock.Lock()
				seen[value%1000]++
				lock.Unlock()
				channels[number+1] <- garbage[len(garbage)-1] + uint64(number)
			}
		}(i)
	}
	ticker := time.NewTicker(time.Duration(pace+1) * time.Millisecond)
	value := uint64(1)
	for step := 1; step <= steps; step++ {
		channels[0] <- value
		value = <-channels[workers]
		if step%10 == 0 {
			runtime.GC()
		}
		<-ticker.C
		lock.Lock()
		fmt.Printf("step %d %016x %d\n", step, value, len(seen))
		lock.Unlock()
	}
	fmt.Printf("done %016x\n", value)
}
