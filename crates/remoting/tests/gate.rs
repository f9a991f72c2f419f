//! The structure of the hot path, seen in socket reads and writes per message.
//!
//! Many threads that share one connection, as the Java client's do, must be served in batches. How large
//! the batches get depends on scheduling, so the gate in figures (0.4 at 64 synchronous threads, 0.2 at 512
//! in flight) is the benchmark's, on an idle machine. Here stands what no scheduling excuses.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use common::{Raw, config, echo, start};
use parking_lot::Mutex;

/// Drives echo requests through one connection and returns socket reads plus writes per message.
fn operations_per_message(threads: usize, in_flight_each: usize, messages_each: usize) -> f64 {
    let server = start(config());
    let mut raw = server.connect();
    let writer = Arc::new(Mutex::new(raw.socket.try_clone().expect("clone")));
    let (senders, receivers): (Vec<SyncSender<()>>, Vec<Receiver<()>>) =
        (0..threads).map(|_| sync_channel(in_flight_each)).unzip();
    let total = threads * messages_each;
    let before = server.server.counters().snapshot();
    let reader = std::thread::spawn(move || read_answers(&mut raw, &senders, total));
    let workers = receivers.into_iter().enumerate().map(|(number, answers)| {
        let writer = writer.clone();
        std::thread::spawn(move || {
            let frame = echo(i32::try_from(number).expect("small"), &[0; 128]);
            for _ in 0..in_flight_each {
                send(&writer, &frame);
            }
            for sent in in_flight_each..messages_each + in_flight_each {
                answers.recv().expect("an answer");
                if sent < messages_each {
                    send(&writer, &frame);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().expect("worker");
    }
    reader.join().expect("reader");
    let used = server.server.counters().snapshot() - before;
    assert_eq!(used.frames_in, total as u64);
    // One write for everything that one read brought; a few more when the peer is slow to read.
    assert!(used.writes <= used.reads + used.reads / 20 + 5, "{used:?}");
    let per_message = (used.reads + used.writes) as f64 / total as f64;
    println!("{threads} threads, {in_flight_each} each: {per_message:.3} operations per message");
    per_message
}

fn send(writer: &Mutex<TcpStream>, frame: &[u8]) {
    writer.lock().write_all(frame).expect("write");
}

fn read_answers(raw: &mut Raw, senders: &[SyncSender<()>], total: usize) {
    for _ in 0..total {
        let number = usize::try_from(raw.answer().opaque).expect("a thread");
        senders[number].send(()).expect("the thread waits");
    }
}

#[test]
fn sixty_four_synchronous_threads_share_reads_and_writes() {
    assert!(operations_per_message(64, 1, 300) < 1.0);
}

#[test]
fn five_hundred_and_twelve_in_flight_share_them_more() {
    assert!(operations_per_message(16, 32, 2000) < 0.5);
}
