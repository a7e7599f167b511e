package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/narad-mq/narad/client"
)

// In the examples addr is the base URL of a node, such as http://127.0.0.1:7942.

func ExampleNew() {
	// Any nodes of the cluster, or a balancer in front of them.
	c, err := client.New("http://10.0.0.1:7942,http://10.0.0.2:7942",
		client.WithBasicAuth("billing", "secret"),
		client.WithName("billing"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.Nodes())
	// Output: [http://10.0.0.1:7942 http://10.0.0.2:7942]
}

func ExampleClient_Produce() {
	ctx := context.Background()
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopic(ctx, client.CreateTopic{Name: "orders"}); err != nil {
		log.Fatal(err)
	}
	err = c.Produce(ctx, "orders", client.Message{
		Key:     []byte("customer-7"), // messages with one key go to one partition
		Payload: []byte(`{"id":1}`),
	})
	fmt.Println("stored:", err == nil)
	// Output: stored: true
}

func ExampleClient_Produce_errors() {
	ctx := context.Background()
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Produce(ctx, "no-such-topic", client.Message{Payload: []byte("hello")})
	switch {
	case err == nil:
		fmt.Println("stored")
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("create the topic first")
	case client.Uncertain(err):
		fmt.Println("may be stored; sending it again may store it twice")
	case client.Retryable(err):
		fmt.Println("not stored; try again later")
	}
	// Output: create the topic first
}

func ExampleClient_ProduceBatch() {
	ctx := context.Background()
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopic(ctx, client.CreateTopic{Name: "clicks"}); err != nil {
		log.Fatal(err)
	}
	err = c.ProduceBatch(ctx, "clicks", []client.Message{ // all or nothing
		{Payload: []byte(`{"page":"/"}`)},
		{Payload: []byte(`{"page":"/about"}`)},
	})
	fmt.Println("stored:", err == nil)
	// Output: stored: true
}

func ExampleProducer() {
	ctx := context.Background()
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopic(ctx, client.CreateTopic{Name: "measurements"}); err != nil {
		log.Fatal(err)
	}
	p, err := c.NewProducer("measurements", client.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 1000 {
		m := client.Message{Payload: fmt.Appendf(nil, `{"value":%d}`, i)}
		// Without a callback Close reports the first failure.
		if err := p.SendAsync(ctx, m, nil); err != nil {
			log.Fatal(err)
		}
	}
	err = p.Close(ctx) // sends what is left and waits for every outcome
	fmt.Println("all stored:", err == nil)
	// Output: all stored: true
}

func ExampleClient_Consume() {
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopic(context.Background(), client.CreateTopic{Name: "jobs"}); err != nil {
		log.Fatal(err)
	}
	if err := c.Produce(context.Background(), "jobs", client.Message{Payload: []byte(`{"job":"resize"}`)}); err != nil {
		log.Fatal(err)
	}

	// A service ends this context on SIGTERM (signal.NotifyContext).
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = c.Consume(ctx, "jobs", func(ctx context.Context, d client.Delivery) error {
		fmt.Printf("working on %s\n", d.Payload)
		cancel() // enough for an example
		return nil
	}, client.ConsumeOptions{Workers: 4})
	fmt.Println("drained:", err == nil)
	// Output:
	// working on {"job":"resize"}
	// drained: true
}

func ExampleClient_Receive() {
	ctx := context.Background()
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopic(ctx, client.CreateTopic{Name: "letters"}); err != nil {
		log.Fatal(err)
	}
	if err := c.Produce(ctx, "letters", client.Message{Payload: []byte("dear reader")}); err != nil {
		log.Fatal(err)
	}
	ds, err := c.Receive(ctx, "letters", client.ReceiveOptions{Wait: 5 * time.Second, Max: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range ds {
		fmt.Printf("%s, delivery %d\n", d.Payload, d.DeliveryCount)
		if err := c.Ack(ctx, "letters", d.Handle); err != nil {
			log.Fatal(err)
		}
	}
	// Output: dear reader, delivery 1
}

func ExampleClient_Replay() {
	ctx := context.Background()
	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureTopic(ctx, client.CreateTopic{Name: "ledger"}); err != nil {
		log.Fatal(err)
	}
	for _, entry := range []string{"+5", "-2"} {
		if err := c.Produce(ctx, "ledger", client.Message{Payload: []byte(entry), Pin: client.Partition(0)}); err != nil {
			log.Fatal(err)
		}
	}
	waitFor(c, "ledger", 2) // a stored message can be read a moment later
	for d, err := range c.Replay(ctx, "ledger", client.ReplayOptions{Pin: client.Partition(0)}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", d.Offset, d.Payload)
	}
	// Output:
	// 0: +5
	// 1: -2
}
