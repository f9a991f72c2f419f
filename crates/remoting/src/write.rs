//! One vectored socket write of an [`Output`], and what remains of it after a partial one.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use tokio::io::AsyncWrite;

use crate::output::Output;

/// Slices of one write; the kernel takes up to 1024, more than this seldom come together.
const SLICES_MAX: usize = 128;

/// Writes as much as the socket takes in one system call and drops those bytes from `out`.
///
/// `out` must not be empty. Returns the bytes written; 0 means that the peer takes no more.
pub(crate) fn poll_write<W: AsyncWrite + Unpin>(
    socket: &mut W,
    cx: &mut Context<'_>,
    out: &mut Output,
) -> Poll<std::io::Result<usize>> {
    let written = if out.sealed.is_empty() {
        ready!(Pin::new(socket).poll_write(cx, &out.tail))?
    } else {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut used = 0;
        let chunks = out.sealed.iter().map(|c| c.as_ref());
        for chunk in chunks.chain(std::iter::once(out.tail.as_ref())).take(SLICES_MAX) {
            if !chunk.is_empty() {
                slices[used] = IoSlice::new(chunk);
                used += 1;
            }
        }
        ready!(Pin::new(socket).poll_write_vectored(cx, &slices[..used]))?
    };
    consume(out, written);
    Poll::Ready(Ok(written))
}

/// Drops the first `written` bytes.
fn consume(out: &mut Output, mut written: usize) {
    while written > 0 {
        let Some(chunk) = out.sealed.front_mut() else { break };
        let n = written.min(chunk.len());
        out.sealed_bytes -= n;
        written -= n;
        if n == chunk.len() {
            out.sealed.pop_front();
        } else {
            chunk.advance(n);
        }
    }
    if written == out.tail.len() {
        // Keeps the whole buffer for the next answers, where `advance` would leave only its end.
        out.tail.clear();
    } else {
        out.tail.advance(written);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_remains_is_what_was_not_written(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..9), 0..6),
            tail in prop::collection::vec(any::<u8>(), 0..9),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut out = Output::new();
            let mut all = Vec::new();
            for chunk in &chunks {
                all.extend_from_slice(chunk);
                out.sealed_bytes += chunk.len();
                out.sealed.push_back(Bytes::copy_from_slice(chunk));
            }
            all.extend_from_slice(&tail);
            out.tail.extend_from_slice(&tail);
            let cut = cut.index(all.len() + 1);
            consume(&mut out, cut);
            let mut rest = out.sealed.iter().flat_map(|c| c.to_vec()).collect::<Vec<_>>();
            rest.extend_from_slice(&out.tail);
            prop_assert_eq!(&rest, &all[cut..]);
            prop_assert_eq!(out.len_bytes(), rest.len());
        }
    }
}
