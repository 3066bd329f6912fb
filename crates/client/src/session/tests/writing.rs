//! Writes that stall: the socket is given up, whatever still arrives on it.

use super::{super::*, kit::*};

/// A socket whose writer reports nothing.
struct Stalled {
    kit: Kit,
    tickets: Vec<Ticket>,
}

impl Stalled {
    fn input(&mut self, input: Input) {
        self.kit.session.handle(input, self.kit.now());
        while let Some(output) = self.kit.session.next_output() {
            if let Output::Send(_, ticket, _) | Output::Ping(_, ticket) = &output {
                self.tickets.push(*ticket);
            }
            self.kit.outputs.push(output);
        }
    }

    /// Lets time pass; the relay's frames arrive all the while.
    fn until(&mut self, at: Duration) {
        while self.kit.at < at {
            self.kit.at = (self.kit.at + ms(500)).min(at);
            let socket = self.kit.socket();
            let frame = relay_frame::notice("still here");
            self.input(Input::Frame(socket, frame));
        }
    }

    fn is_given_up(&self) -> bool {
        let drops = |output: &Output| matches!(output, Output::Drop(_));
        self.kit.outputs.iter().any(drops)
    }
}

fn stalled() -> Stalled {
    Stalled {
        kit: Kit::online(false),
        tickets: Vec::new(),
    }
}

fn publish(stalled: &mut Stalled, n: u64) {
    let message = Box::new(event(9, 1, n, UNIX));
    stalled.input(Input::Command(Command::Publish(RequestId(n), message)));
}

/// Kills: a stall that frames from the relay hide; a clock that each new frame starts anew; a clock
/// that runs while nothing is to be written.
#[test]
fn a_write_without_progress_for_ten_seconds_ends_the_socket_whatever_arrives() {
    let mut stalled = stalled();
    stalled.until(secs(20));
    publish(&mut stalled, 1);
    stalled.until(secs(25));
    publish(&mut stalled, 2);
    stalled.until(ms(29_500));
    assert!(!stalled.is_given_up());
    assert_eq!(stalled.kit.session.wake_at(), Some(secs(30)));
    stalled.kit.at = secs(30);
    stalled.input(Input::Tick);
    assert!(stalled.is_given_up());
    // On the next socket both are sent again.
    stalled.kit.open();
    stalled.kit.until(secs(32));
    assert_eq!(stalled.kit.results(RequestId(1)), []);
}

/// Kills: a ping that is no write.
#[test]
fn a_stalled_ping_is_noticed_too() {
    let mut stalled = stalled();
    stalled.until(ms(39_500));
    assert_eq!(stalled.tickets.len(), 1);
    assert!(!stalled.is_given_up());
    stalled.until(secs(40));
    assert!(stalled.is_given_up());
}

/// Kills: a large frame on a slow line, or many small ones, taken for a stall; an old socket's
/// progress taken for this one's; a clock that goes on when all is written.
#[test]
fn a_write_that_makes_progress_lives_on() {
    for tick in 0..3 {
        let mut stalled = stalled();
        for n in 0..4 {
            publish(&mut stalled, n);
        }
        let socket = stalled.kit.socket();
        for (n, ticket) in stalled.tickets.clone().into_iter().enumerate() {
            stalled.until(secs(9 * (n as u64 + 1)));
            assert!(!stalled.is_given_up());
            let report = match tick {
                0 => Input::WriteProgress(socket),
                1 => Input::Written(ticket),
                _ => Input::WriteProgress(SocketId(socket.0 + 1)),
            };
            stalled.input(report);
            if tick == 2 {
                break;
            }
        }
        if tick == 1 {
            for ticket in std::mem::take(&mut stalled.tickets) {
                stalled.input(Input::Written(ticket));
            }
        }
        let last = stalled.kit.at;
        stalled.until(last + secs(if tick == 2 { 1 } else { 9 }));
        assert_eq!(stalled.is_given_up(), tick == 2, "{tick}");
        stalled.until(last + secs(10));
        assert_eq!(stalled.is_given_up(), tick != 1, "{tick}");
    }
}
