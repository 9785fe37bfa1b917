//! The programs that stamp exchanges, each from top to bottom. They read sizes, flags and sockets, and never a byte of payload.
//!
//! Registers: `R6` the connection's record, `R7` its end (0 the client's, 1 the server's), `R8` a number of bytes or the moment at
//! which a send began, `R9` now.
//!
//! The tracepoints of a send and a receive are at the *end* of the call. Over TCP on the loopback the whole transport happens
//! inside the sender's call, so that they alone hide just what TCP costs: a client's clock said 42.0 µs, they said 30.5. The
//! beginning of a send is stamped at the entry of its function ([`Mode::Entries`] and, on kernels without these tracepoints,
//! [`Mode::Functions`]), or at the entry of its system call
//! ([`Mode::SystemCalls`]), which `sk_data_ready` reads: it runs inside the sender's call. Otherwise the time begins with the
//! arrival ([`Mode::Arrivals`]).

use std::io;

use super::record::{
    ANSWERED, ARRIVED, BACK, BEGUN, BUCKETS, BYTES, EXCHANGES, FIRST_SUM, IS_UNTIMED, LAST, LAST_SUM, LASTS,
    LOG_SUM, NAMED, OPENING, OUT, PAIR, PART_SUMS, PARTS, PUSHED, READ, RECEIVED, RECEIVES, RETURNED,
    SEEN_READING, STREAMED, TAKEN, TAKEN_AT, UNASKED, UNTIMED, VIOLATED, VIOLATIONS, compute_bucket,
    compute_log,
};
use super::{Mode, Opening};
use crate::map::{Kind, Map};
use crate::program::Arithmetic::{Add, And, Or, ShiftLeft, ShiftRight, Subtract};
use crate::program::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use crate::program::{
    AS_UNIX, Assembly, COOKIE, DELETE, Instruction, Label, NOW, OF_SOCKET, OF_TASK, Register, SOCKET_OF_FILE,
    TASK, Test, call, compute, copy, copy_word, count, end, load_long, load_word, map, set, store_long,
    store_number, store_word,
};

/// How much later than the first piece took a reply's next piece may come and still be asked for: 5 ms,
/// in nanoseconds. It counts from the piece before and only after all was read. A server that sends a
/// long reply in pieces pauses for less. With 5 ms alone, without what the first piece took, replies of 2
/// MB on an emulated processor were not replies (docs/method.md §14).
const SILENCE: i32 = 5_000_000;
/// In the place of [`SEEN_READING`]: the server has answered without having been seen to read.
const MISSED: i32 = 2;
/// `BPF_LOCAL_STORAGE_GET_F_CREATE`: a socket or thread without a value gets one.
const MAKE: i32 = 1;
/// Places on the stack: a number of 32 bits, one of 64, and whether nobody knows when this send began.
const NUMBER: i16 = -4;
const LONG: i16 = -16;
const NO_STAMP: i16 = -24;

/// Maps that the programs share with this process.
#[derive(Debug)]
pub(super) struct Maps {
    /// Sockets that are to be measured: cookie → record and end.
    pub(super) wanted: Map,
    /// What such a socket carries: its record and end. A hash by cookie for each event took 60 ns more.
    pub(super) own: Map,
    /// Where a `struct sock` has its cookie, for kernels whose programs may neither ask for it nor find what a socket carries: each
    /// event looks its socket up in `wanted` there.
    pub(super) cookie_at: Option<i16>,
    pub(super) records: Map,
    /// Buckets of the time to the first piece and to the last, for each pair.
    pub(super) times: Map,
    /// When a thread that has sent on such a socket entered the system call that sends; zero in any other call. Where system calls
    /// are stamped.
    pub(super) stamps: Option<Map>,
    /// Where connections are measured from their opening on.
    pub(super) opening: Option<Opening>,
}

impl Maps {
    pub(super) fn make(connections: u32, pairs: u32) -> io::Result<Self> {
        Ok(Maps {
            wanted: Map::make(Kind::Hash, 8, 8, 2 * connections)?,
            own: Map::make(Kind::OfSockets, 4, 8, 0)?,
            cookie_at: None,
            records: Map::make(Kind::Array, 4, BYTES, connections)?,
            times: Map::make(Kind::PerProcessor, 4, 8 * BUCKETS, 2 * pairs)?,
            stamps: None,
            opening: None,
        })
    }
}

/// A program that is being written: its instructions so far, and the label at its end, where it goes when there is no more to do.
struct Writer<'a> {
    program: Assembly,
    maps: &'a Maps,
    mode: Mode,
    out: Label,
}

/// Where a program that sees the end of a send or a receive finds the socket, the result and, of a receive, the flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments {
    /// Where a `struct socket`, which is the first argument, has its `struct sock`; `None` where the argument is that itself.
    sock: Option<i16>,
    result: i16,
    flags: i16,
}

impl Arguments {
    /// Of `sock_send_length` and `sock_recv_length`: socket, result, flags.
    pub(super) const OF_TRACEPOINT: Self = Arguments { sock: None, result: 8, flags: 16 };

    /// Of a function that returns, with so many arguments: a `struct socket`, the message, its size, and of a receive the flags.
    /// The result stands behind them.
    pub(super) fn of_function(sock: i16, arguments: i16) -> Self {
        Arguments { sock: Some(sock), result: 8 * arguments, flags: 24 }
    }
}

/// The end of a send: tracepoint `sock_send_length`, or where a function that sends returns.
pub(super) fn sent(maps: &Maps, mode: Mode, at: Arguments) -> Vec<Instruction> {
    let mut to = Writer::new(maps, mode);
    let (is_servers, done) = (to.program.label(), to.program.label());
    to.program.put([load_long(R8, R1, at.result)]);
    to.program.go_unless_positive(R8, to.out);
    to.load_sock(at.sock);
    to.find_record();
    to.program.put([copy_word(R8, R8)]);
    to.program.go_if(R7, Test::IsNot, 0, is_servers);
    to.add(OUT, R8);
    to.program.go(done);
    to.program.place(is_servers);
    to.add(BACK, R8);
    to.program.place(done);
    if let Some(stamps) = &maps.stamps {
        // From now on this thread's system calls are stamped; this one's stamp is used up.
        to.find_stamp(stamps, MAKE);
        to.program.go_if(R0, Test::Is, 0, to.out);
        to.program.put([store_number(R0, 0, 0)]);
    }
    to.finish()
}

/// The end of a receive: tracepoint `sock_recv_length`, or where a function that receives returns; not of one that only looked
/// (MSG_PEEK), failed, or was at the end of the stream.
pub(super) fn received(maps: &Maps, mode: Mode, at: Arguments) -> Vec<Instruction> {
    const MSG_PEEK: i32 = 2;
    let mut to = Writer::new(maps, mode);
    let (is_servers, is_asked, is_first, is_reply) =
        (to.program.label(), to.program.label(), to.program.label(), to.program.label());
    to.program.put([load_long(R8, R1, at.result), load_long(R3, R1, at.flags)]);
    to.program.go_unless_positive(R8, to.out);
    to.program.put([compute(R3, And, MSG_PEEK)]);
    to.program.go_if(R3, Test::IsNot, 0, to.out);
    to.load_sock(at.sock);
    to.find_record();
    to.program.put([copy_word(R8, R8), call(NOW), copy(R9, R0)]);
    to.program.go_if(R7, Test::IsNot, 0, is_servers);
    to.go_if_zero(PUSHED, is_asked);
    to.program.put([store_number(R6, PUSHED, 0)]);
    // The first one may be the reply to a request that was sent before the socket was named.
    to.go_if_zero(RECEIVES, is_asked);
    to.add_one(UNASKED);
    to.program.put([store_number(R6, STREAMED, 1), load_long(R1, R6, READ)]);
    to.program.go_if(R1, Test::IsNot, 0, is_asked);
    to.program.put([store_number(R6, VIOLATED, 1)]);
    to.program.place(is_asked);
    to.add(RECEIVED, R8);
    to.add_one(RECEIVES);
    to.go_if_zero(BEGUN, to.out);
    to.program.put([store_long(R6, LAST, R9)]);
    to.go_if_zero(READ, is_reply);
    to.program.go(to.out);
    to.program.place(is_reply);
    to.program.put([store_long(R6, READ, R9)]);
    to.program.go(to.out);
    to.program.place(is_servers);
    to.add(TAKEN, R8);
    if mode.is_at_returns() {
        to.program.put([store_number(R6, SEEN_READING, 1)]);
    }
    to.go_if_zero(TAKEN_AT, is_first);
    to.program.go(to.out);
    to.program.place(is_first);
    to.program.put([store_long(R6, TAKEN_AT, R9)]);
    to.finish()
}

/// Tracepoint `sk_data_ready`, or the function `sock_def_readable`: socket. Bytes, or the end of the stream, are there for the
/// socket's owner.
pub(super) fn arrived(maps: &Maps, mode: Mode) -> Vec<Instruction> {
    let mut to = Writer::new(maps, mode);
    let is_servers = to.program.label();
    to.program.put([load_long(R2, R1, 0)]);
    match &maps.opening {
        Some(opening) => to.find_or_give_record(opening),
        None => to.find_record(),
    }
    if let Some(stamps) = &maps.stamps {
        let (is_known, is_read) = (to.program.label(), to.program.label());
        to.find_stamp(stamps, 0);
        to.program.go_if(R0, Test::IsNot, 0, is_known);
        to.program.put([set(R8, 0)]);
        to.program.go(is_read);
        to.program.place(is_known);
        to.program.put([load_long(R8, R0, 0)]);
        to.program.place(is_read);
    }
    to.program.put([call(NOW), copy(R9, R0)]);
    if mode == Mode::Arrivals {
        to.program.put([copy(R8, R9)]);
    }
    to.program.go_if(R7, Test::IsNot, 0, is_servers);
    to.reply_arrives();
    to.program.go(to.out);
    to.program.place(is_servers);
    match mode {
        Mode::Entries | Mode::Functions | Mode::FunctionsByCookie => to.request_arrives(),
        Mode::SystemCalls | Mode::Arrivals => to.request_begins(),
    }
    to.finish()
}

/// The entry of a function that sends, whose first argument is a `struct socket`.
pub(super) fn enters(maps: &Maps, mode: Mode, sock: i16) -> Vec<Instruction> {
    let mut to = Writer::new(maps, mode);
    let is_servers = to.program.label();
    to.load_sock(Some(sock));
    to.find_record();
    to.program.put([call(NOW), copy(R9, R0), copy(R8, R0)]);
    to.program.go_if(R7, Test::IsNot, 0, is_servers);
    to.request_begins();
    to.program.go(to.out);
    to.program.place(is_servers);
    let is_first = to.program.label();
    to.go_if_zero(BEGUN, to.out);
    to.program.put([load_long(R1, R6, READ)]);
    to.program.go_if(R1, Test::IsNot, 0, to.out);
    to.go_if_zero(ANSWERED, is_first);
    to.program.go(to.out);
    to.program.place(is_first);
    to.program.put([store_long(R6, ANSWERED, R9)]);
    to.check_order();
    to.finish()
}

/// Tracepoint `sys_enter`: registers, number. Stamps the calls that send of threads that have sent on a socket that is measured,
/// and takes the stamp away in all others: what arrives during them was sent by somebody else.
pub(super) fn calls(maps: &Maps, stamps: &Map) -> Vec<Instruction> {
    let mut to = Writer::new(maps, Mode::SystemCalls);
    let sends = to.program.label();
    to.program.put([load_long(R6, R1, 8)]);
    to.find_stamp(stamps, 0);
    to.program.go_if(R0, Test::Is, 0, to.out);
    to.program.put([copy(R7, R0)]);
    for number in [
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_sendfile,
        libc::SYS_splice,
        libc::SYS_pwritev2,
        libc::SYS_io_uring_enter,
    ] {
        to.program.go_if(R6, Test::Is, number as i32, sends);
    }
    to.program.put([store_number(R7, 0, 0)]);
    to.program.go(to.out);
    to.program.place(sends);
    to.program.put([call(NOW), store_long(R7, 0, R0)]);
    to.finish()
}

/// A walk through all open files (`task_file`: its state, task, number, file) that gives wanted sockets
/// what they carry. By a cookie this process could not give it to them, and with descriptors of other
/// processes' sockets (`pidfd_getfd`) it would take 10,000 calls and the rights of a debugger, where one
/// walk takes 11 ms. A table by cookie, asked at each event, was rejected where the kernel has this
/// storage: it costs 60 ns more an event (docs/decisions/0134).
pub(super) fn names(maps: &Maps, sock: i16) -> Vec<Instruction> {
    let mut to = Writer::new(maps, Mode::Entries);
    to.program.put([load_long(R1, R1, 24)]);
    to.program.go_if(R1, Test::Is, 0, to.out);
    to.program.put([call(SOCKET_OF_FILE)]);
    to.program.go_if(R0, Test::Is, 0, to.out);
    to.program.put([load_long(R7, R0, sock)]);
    to.program.go_if(R7, Test::Is, 0, to.out);
    to.program.put([copy(R1, R7), call(COOKIE), store_long(R10, LONG, R0)]);
    to.program.look_up(&maps.wanted, LONG);
    to.program.go_if(R0, Test::Is, 0, to.out);
    to.program.put([load_word(R8, R0, 0), load_word(R9, R0, 4)]);
    to.program.put([store_word(R10, LONG, R8), store_word(R10, LONG + 4, R9)]);
    to.program.put(map(R1, &maps.own));
    to.program.put([copy(R2, R7), copy(R3, R10), compute(R3, Add, i32::from(LONG)), set(R4, MAKE)]);
    to.program.put([call(OF_SOCKET)]);
    to.program.go_if(R0, Test::Is, 0, to.out);
    to.program.put([store_word(R10, NUMBER, R8)]);
    to.look_up_record();
    to.program.put([compute(R9, And, 1), set(R1, 1), compute(R1, ShiftLeft, R9)]);
    to.program.put([load_word(R2, R0, NAMED), compute(R2, Or, R1), store_word(R0, NAMED, R2)]);
    to.finish()
}

/// Tracepoint `inet_sock_set_state`: socket, old state, new state. A connection is established for its client, whose socket is
/// measured already, and right after that for the server, whose new socket has the same ports the other way round.
pub(super) fn established(maps: &Maps, opening: &Opening) -> Vec<Instruction> {
    const TCP_ESTABLISHED: i32 = 1;
    let mut to = Writer::new(maps, Mode::Entries);
    let is_servers = to.program.label();
    to.program.put([load_long(R2, R1, 16), copy_word(R2, R2), load_long(R9, R1, 0)]);
    to.program.go_if(R2, Test::IsNot, TCP_ESTABLISHED, to.out);
    to.program.put([load_word(R8, R9, opening.ports_at)]);
    to.program.put([copy(R2, R9)]);
    to.find_carried();
    to.program.go_if(R0, Test::Is, 0, is_servers);
    to.program.put([load_word(R1, R0, 0), store_word(R10, LONG, R1), store_word(R10, NUMBER, R8)]);
    to.program.update(&opening.ports, [NUMBER, LONG], 0);
    to.program.go(to.out);
    to.program.place(is_servers);
    // The lower half is the peer's port in the network's order, the upper half the socket's own in this machine's.
    to.program.put([copy(R1, R8), compute(R1, ShiftRight, 16)]);
    to.swap_bytes(R1, R2);
    to.program.put([copy(R3, R8), compute(R3, And, 0xffff)]);
    to.swap_bytes(R3, R4);
    to.program.put([compute(R3, ShiftLeft, 16), compute(R1, Or, R3), store_word(R10, NUMBER, R1)]);
    to.program.look_up(&opening.ports, NUMBER);
    to.program.go_if(R0, Test::Is, 0, to.out);
    to.program.put([load_word(R8, R0, 0)]);
    to.program.put(map(R1, &opening.ports));
    to.program.put([copy(R2, R10), compute(R2, Add, i32::from(NUMBER)), call(DELETE)]);
    to.give_servers_end();
    to.finish()
}

impl<'a> Writer<'a> {
    fn new(maps: &'a Maps, mode: Mode) -> Self {
        let mut program = Assembly::default();
        let out = program.label();
        Writer { program, maps, mode, out }
    }

    fn finish(mut self) -> Vec<Instruction> {
        self.program.place(self.out);
        self.program.put([set(R0, 0), end()]);
        self.program.finish()
    }

    /// In `R2` the `struct sock` of the first argument, whose arguments are in `R1`: see [`Arguments`].
    fn load_sock(&mut self, within: Option<i16>) {
        self.program.put([load_long(R2, R1, 0)]);
        if let Some(place) = within {
            self.program.put([load_long(R2, R2, place)]);
            self.program.go_if(R2, Test::Is, 0, self.out);
        }
    }

    /// The record and the end of the socket in `R2`; of a socket that is not measured the program ends here.
    fn find_record(&mut self) {
        self.find_carried();
        self.program.go_if(R0, Test::Is, 0, self.out);
        self.take_record();
    }

    /// In `R0` what the socket in `R2` carries, or zero.
    fn find_carried(&mut self) {
        if let Some(place) = self.maps.cookie_at {
            self.program.put([load_long(R1, R2, place), store_long(R10, LONG, R1)]);
            self.program.look_up(&self.maps.wanted, LONG);
            return;
        }
        self.program.put(map(R1, &self.maps.own));
        self.program.put([set(R3, 0), set(R4, 0), call(OF_SOCKET)]);
    }

    /// In `R6` and `R7` the record and the end that are in `R0`.
    fn take_record(&mut self) {
        self.program.put([load_word(R7, R0, 4), load_word(R1, R0, 0), store_word(R10, NUMBER, R1)]);
        self.look_up_record();
        self.program.put([copy(R6, R0)]);
    }

    /// The same for bytes that arrive. A Unix socket that carries nothing, and whose other end is a client's, becomes that
    /// connection's server's end: it is made by the kernel at `connect`, and nobody knows its cookie or has its descriptor before
    /// it is accepted. A list of all sockets (unix_diag) has it, and would be asked for at each connect.
    fn find_or_give_record(&mut self, opening: &Opening) {
        let (is_known, is_given) = (self.program.label(), self.program.label());
        self.program.put([copy(R9, R2)]);
        self.find_carried();
        self.program.go_if(R0, Test::IsNot, 0, is_known);
        self.program.put([copy(R1, R9), call(AS_UNIX)]);
        self.program.go_if(R0, Test::Is, 0, self.out);
        self.program.put([load_long(R2, R0, opening.peer_at)]);
        self.program.go_if(R2, Test::Is, 0, self.out);
        self.find_carried();
        self.program.go_if(R0, Test::Is, 0, self.out);
        self.program.put([load_word(R1, R0, 4), load_word(R8, R0, 0)]);
        self.program.go_if(R1, Test::IsNot, 0, self.out);
        self.give_servers_end();
        self.program.go(is_given);
        self.program.place(is_known);
        self.take_record();
        self.program.place(is_given);
    }

    /// Gives the socket in `R9` what the server's end carries of the record whose number is in `R8`, and puts both into `R6` and
    /// `R7`.
    fn give_servers_end(&mut self) {
        self.program.put([set(R7, 1), store_word(R10, LONG, R8), store_word(R10, LONG + 4, R7)]);
        self.program.put(map(R1, &self.maps.own));
        self.program.put([copy(R2, R9), copy(R3, R10), compute(R3, Add, i32::from(LONG)), set(R4, MAKE)]);
        self.program.put([call(OF_SOCKET)]);
        self.program.go_if(R0, Test::Is, 0, self.out);
        self.program.put([store_word(R10, NUMBER, R8)]);
        self.look_up_record();
        self.program.put([copy(R6, R0), load_word(R2, R6, NAMED)]);
        self.program.put([compute(R2, Or, 2), store_word(R6, NAMED, R2)]);
    }

    /// Swaps both bytes of a number of 16 bits; uses up the other register.
    fn swap_bytes(&mut self, number: Register, other: Register) {
        self.program.put([copy(other, number), compute(other, ShiftRight, 8)]);
        self.program.put([compute(number, And, 0xff), compute(number, ShiftLeft, 8)]);
        self.program.put([compute(number, Or, other)]);
    }

    /// In `R0` the record whose number is on the stack.
    fn look_up_record(&mut self) {
        self.program.look_up(&self.maps.records, NUMBER);
        self.program.go_if(R0, Test::Is, 0, self.out);
    }

    /// In `R0` the stamp of this thread, or zero.
    fn find_stamp(&mut self, stamps: &Map, flags: i32) {
        self.program.put([call(TASK), copy(R2, R0)]);
        self.program.put(map(R1, stamps));
        self.program.put([set(R3, 0), set(R4, flags), call(OF_TASK)]);
    }

    fn go_if_zero(&mut self, place: i16, to: Label) {
        self.program.put([load_long(R1, R6, place)]);
        self.program.go_if(R1, Test::Is, 0, to);
    }

    /// Adds to a part of the record that one end alone writes; uses up `R1`.
    fn add(&mut self, place: i16, by: Register) {
        self.program.put([load_long(R1, R6, place), compute(R1, Add, by), store_long(R6, place, R1)]);
    }

    fn add_one(&mut self, place: i16) {
        self.program.put([load_long(R1, R6, place), compute(R1, Add, 1), store_long(R6, place, R1)]);
    }

    /// The client's bytes are there for the server, and the entry of its send was stamped.
    fn request_arrives(&mut self) {
        let is_first = self.program.label();
        self.go_if_zero(BEGUN, self.out);
        self.go_if_zero(ARRIVED, is_first);
        self.program.go(self.out);
        self.program.place(is_first);
        self.program.put([store_long(R6, ARRIVED, R9)]);
    }

    /// The client begins to send, at `R8`. After a reply that begins an exchange, and the one before is counted now: only now
    /// it is known which piece of its reply was the last.
    fn request_begins(&mut self) {
        let (is_new, follows, is_whole, goes_on) =
            (self.program.label(), self.program.label(), self.program.label(), self.program.label());
        self.program.put([store_number(R10, NO_STAMP, 0), load_word(R1, R6, NAMED)]);
        if self.maps.opening.is_none() {
            self.program.go_if(R1, Test::IsNot, 3, self.out);
        }
        if self.mode == Mode::SystemCalls {
            let is_stamped = self.program.label();
            self.program.go_if(R8, Test::IsNot, 0, is_stamped);
            self.program.put([store_number(R10, NO_STAMP, 1), copy(R8, R9)]);
            self.program.place(is_stamped);
        }
        self.program.put([load_long(R1, R6, BEGUN)]);
        self.program.go_if(R1, Test::IsNot, 0, follows);
        // Both ends' bytes are counted from here on, as if all that was sent before had been read: of one request at a time
        // it was.
        self.program.put([load_long(R1, R6, OUT), store_long(R6, TAKEN, R1)]);
        self.program.put([load_long(R1, R6, BACK), store_long(R6, RECEIVED, R1)]);
        self.program.go(is_new);
        self.program.place(follows);
        // A sender that was interrupted just before this may be late: the reply has been read by then.
        self.program.put([load_long(R1, R6, LAST)]);
        self.program.go_if(R8, Test::IsAtMost, R1, self.out);
        self.go_if_zero(READ, goes_on);
        self.program.put([load_long(R1, R6, RECEIVED), load_long(R2, R6, BACK)]);
        let is_read = self.program.label();
        self.program.go_if(R2, Test::IsAtMost, R1, is_read);
        self.program.put([store_number(R6, VIOLATED, 1)]);
        self.program.place(is_read);
        self.account(is_new);
        self.program.place(goes_on);
        // It sends on before its reply: the second piece of a request, unless a reply waits to be read already.
        self.go_if_zero(RETURNED, is_whole);
        self.program.put([store_number(R6, VIOLATED, 1)]);
        self.program.place(is_whole);
        self.program.go(self.out);
        self.program.place(is_new);
        self.open();
    }

    /// Begins an exchange at `R8`.
    fn open(&mut self) {
        // What the server read may have been noted before the arrival of what it read: it waits on another processor. Only with
        // a stamp it is known which it was; without one, what it read since the last reply.
        let since_reply = self.mode == Mode::Arrivals;
        if self.mode.is_at_returns() {
            // Only now have all sends before this one returned, which count their bytes as they do.
            let has_all = self.program.label();
            self.program.put([load_long(R1, R6, SEEN_READING)]);
            self.program.go_if(R1, Test::IsNot, MISSED, has_all);
            self.program.put([load_long(R1, R6, OUT), store_long(R6, TAKEN, R1)]);
            self.program.put([store_number(R6, SEEN_READING, 1)]);
            self.program.place(has_all);
        }
        self.program.put([load_long(R2, R6, LAST)]);
        for place in [TAKEN_AT, ANSWERED, RETURNED, READ] {
            let is_later = self.program.label();
            let since = if since_reply && place == TAKEN_AT { R2 } else { R8 };
            self.program.put([load_long(R1, R6, place)]);
            self.program.go_if(R1, Test::IsMore, since, is_later);
            self.program.put([store_number(R6, place, 0)]);
            self.program.place(is_later);
        }
        self.program.put([load_long(R1, R10, NO_STAMP), store_long(R6, IS_UNTIMED, R1)]);
        self.program.put([store_number(R6, VIOLATED, 0), store_number(R6, STREAMED, 0)]);
        match self.mode {
            Mode::Entries | Mode::Functions | Mode::FunctionsByCookie => {
                self.program.put([store_number(R6, ARRIVED, 0)]);
            }
            Mode::SystemCalls | Mode::Arrivals => self.program.put([store_long(R6, ARRIVED, R9)]),
        }
        self.program.put([store_long(R6, BEGUN, R8)]);
    }

    /// Bytes are there for the client; where a stamp says so, sent from `R8` on.
    fn reply_arrives(&mut self) {
        let (pushed, is_asked, is_first, is_unknown) =
            (self.program.label(), self.program.label(), self.program.label(), self.program.label());
        self.go_if_zero(BEGUN, pushed);
        self.go_if_zero(READ, is_asked);
        self.program.put([load_long(R1, R6, LAST), copy(R2, R9), compute(R2, Subtract, R1)]);
        self.program.put([load_long(R1, R6, READ), load_long(R3, R6, BEGUN), compute(R1, Subtract, R3)]);
        self.program.put([compute(R1, Add, SILENCE)]);
        self.program.go_if(R2, Test::IsAtMost, R1, self.out);
        self.program.put([load_long(R1, R6, RECEIVED), load_long(R2, R6, BACK)]);
        self.program.go_if(R1, Test::IsLess, R2, self.out);
        self.program.place(pushed);
        self.program.put([store_number(R6, PUSHED, 1)]);
        self.program.go(self.out);
        self.program.place(is_asked);
        self.go_if_zero(RETURNED, is_first);
        self.program.go(self.out);
        self.program.place(is_first);
        if self.mode == Mode::SystemCalls {
            self.program.go_if(R8, Test::Is, 0, is_unknown);
            self.program.put([load_long(R1, R6, BEGUN)]);
            self.program.go_if(R8, Test::IsLess, R1, self.out);
            self.program.put([store_long(R6, ANSWERED, R8)]);
        }
        self.program.place(is_unknown);
        self.program.put([store_long(R6, RETURNED, R9)]);
        if !self.mode.is_at_entries() {
            self.check_order();
        }
    }

    /// The server begins to answer: if it has not read all that was sent, requests overlap.
    fn check_order(&mut self) {
        let violates = self.program.label();
        if self.mode.is_at_returns() {
            // A receive that was under way before the program was at its place is not seen to return: an idle server's first one. It
            // answers, so it has read. Without this all exchanges after that one would overlap with it.
            let is_seen = self.program.label();
            self.program.put([load_long(R1, R6, SEEN_READING)]);
            self.program.go_if(R1, Test::IsNot, 0, is_seen);
            self.program.put([store_number(R6, SEEN_READING, MISSED)]);
            self.program.go(self.out);
            self.program.place(is_seen);
        }
        self.go_if_zero(TAKEN_AT, violates);
        self.program.put([load_long(R1, R6, TAKEN), load_long(R2, R6, OUT)]);
        self.program.go_if(R2, Test::IsAtMost, R1, self.out);
        self.program.place(violates);
        self.program.put([store_number(R6, VIOLATED, 1)]);
    }

    /// Counts the exchange of the record, and goes on at `next`. Uses up `R7`.
    fn account(&mut self, next: Label) {
        let (is_whole, is_timed, no_last) =
            (self.program.label(), self.program.label(), self.program.label());
        self.go_if_zero(VIOLATED, is_whole);
        self.add_one(VIOLATIONS);
        self.program.go(next);
        self.program.place(is_whole);
        self.add_one(EXCHANGES);
        self.go_if_zero(IS_UNTIMED, is_timed);
        self.add_one(UNTIMED);
        self.program.go(next);
        self.program.place(is_timed);
        let is_apart = self.program.label();
        if self.maps.opening.is_some() {
            self.keep_opening_apart(is_apart);
        }
        self.count_time(READ, FIRST_SUM, 0);
        if self.maps.opening.is_some() {
            self.load_time(READ);
            compute_log(&mut self.program);
            self.add(LOG_SUM, R2);
        }
        self.program.place(is_apart);
        self.program.put([load_long(R1, R6, STREAMED)]);
        self.program.go_if(R1, Test::IsNot, 0, no_last);
        self.count_time(LAST, LAST_SUM, 1);
        self.add_one(LASTS);
        self.program.place(no_last);
        if self.mode != Mode::Arrivals {
            self.add_parts(next);
        }
        self.program.go(next);
    }

    /// Keeps the time of the connection's first exchange, and goes on at `kept` if it is that.
    fn keep_opening_apart(&mut self, kept: Label) {
        let is_later = self.program.label();
        self.program.put([load_long(R1, R6, OPENING)]);
        self.program.go_if(R1, Test::IsNot, 0, is_later);
        self.load_time(READ);
        self.program.put([store_long(R6, OPENING, R7)]);
        self.program.go(kept);
        self.program.place(is_later);
    }

    /// In `R7` the time from the beginning to a moment; uses up `R1`.
    fn load_time(&mut self, until: i16) {
        self.program.put([load_long(R7, R6, until), load_long(R1, R6, BEGUN), compute(R7, Subtract, R1)]);
    }

    /// Adds the time from the beginning to a moment to a sum, and counts its bucket.
    fn count_time(&mut self, until: i16, sum: i16, which: i32) {
        let is_done = self.program.label();
        self.load_time(until);
        self.add(sum, R7);
        self.program.put([load_word(R1, R6, PAIR), compute(R1, ShiftLeft, 1), compute(R1, Or, which)]);
        self.program.put([store_word(R10, NUMBER, R1)]);
        self.program.look_up(&self.maps.times, NUMBER);
        self.program.go_if(R0, Test::Is, 0, is_done);
        compute_bucket(&mut self.program);
        // Programs for several events run on one processor, and one may interrupt another.
        self.program.put([compute(R2, ShiftLeft, 3), compute(R0, Add, R2), set(R1, 1), count(R0, 0, R1)]);
        self.program.place(is_done);
    }

    /// Adds the five parts, if all moments are known and follow each other.
    fn add_parts(&mut self, next: Label) {
        let moments =
            [(R1, BEGUN), (R2, ARRIVED), (R3, TAKEN_AT), (R4, ANSWERED), (R0, RETURNED), (R7, READ)];
        for (register, place) in moments {
            self.program.put([load_long(register, R6, place)]);
            self.program.go_if(register, Test::Is, 0, next);
        }
        // A reader on another processor may have it before the sender says that it is there: then there was no waiting.
        for (arrival, read) in [(R2, R3), (R0, R7)] {
            let is_before = self.program.label();
            self.program.go_if(arrival, Test::IsAtMost, read, is_before);
            self.program.put([copy(arrival, read)]);
            self.program.place(is_before);
        }
        for (earlier, later) in [(R1, R2), (R3, R4), (R4, R0)] {
            self.program.go_if(later, Test::IsLess, earlier, next);
        }
        for (later, earlier) in [(R7, R0), (R0, R4), (R4, R3), (R3, R2), (R2, R1)] {
            self.program.put([compute(later, Subtract, earlier)]);
        }
        for (part, sum) in [R2, R3, R4, R0, R7].into_iter().zip(PART_SUMS) {
            self.add(sum, part);
        }
        self.add_one(PARTS);
    }
}
