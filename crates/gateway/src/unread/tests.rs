use futures::task::noop_waker_ref;

use super::*;

/// A buffer of this size.
fn mk_buffer(size: usize) -> Bytes {
    Bytes::from(vec![b'x'; size])
}

/// Reads these bytes, which are a part of the buffer.
fn read(all: &Unread, buffer: &Bytes, from: usize, until: usize) {
    let part = &buffer[from..until];
    all.read(part, buffer.as_ptr().addr() + buffer.len(), 0);
}

/// Reads buffers of one piece each. Returns these, and how much is kept then.
fn receive(all: &Unread, pieces: usize) -> (Vec<Bytes>, usize) {
    let mut kept = 0;
    let buffer = |_| {
        let bytes = mk_buffer(100);
        read(all, &bytes, 0, 100);
        kept = all.received();
        bytes.slice(10..11)
    };
    ((0..pieces).map(buffer).collect(), kept)
}

fn kept(all: &Unread) -> usize {
    all.0.lock().buffers.values().filter(|buffer| buffer.pieces > 0).count()
}

/// Polls the body in vain. Returns the waker that hyper has then.
fn wait(body: &Pieces) -> Waker {
    let mut waker = None;
    let polled = body.poll(&Context::from_waker(noop_waker_ref()), |cx| {
        waker = Some(cx.waker().clone());
        Poll::<()>::Pending
    });
    assert!(polled.is_pending());
    waker.unwrap()
}

#[test]
fn a_buffer_counts_while_it_has_a_piece() {
    let all = Arc::new(Unread::default());
    let body = all.body();
    let buffer = mk_buffer(100);
    read(&all, &buffer, 0, 50);
    assert_eq!([all.received(), all.received()], [1, 1]);
    read(&all, &buffer, 50, 100);
    assert_eq!([all.received(), all.received()], [1, 1], "it is the same one");
    let (others, number) = receive(&all, 3);
    assert_eq!(number, 4);
    let empty = buffer.slice(100..100);
    for (piece, left) in [(buffer.slice(..10), 4), (buffer.slice(10..50), 4), (empty, 4), (buffer.slice(60..), 3)] {
        body.take(piece);
        assert_eq!(kept(&all), left);
    }
    body.take(Bytes::from_static(b"from elsewhere"));
    assert_eq!(kept(&all), 3);
    others.into_iter().for_each(|piece| drop(body.take(piece)));
    assert_eq!(kept(&all), 0);
}

#[test]
fn larger_buffers_and_many_pieces_count_for_more() {
    let all = Unread::default();
    for (size, sum) in [(BUFFER, 1), (2 * BUFFER + FRAME_HEAD, 3), (3 * BUFFER, 6)] {
        let buffer = mk_buffer(size);
        read(&all, &buffer, 0, 20);
        assert_eq!(all.received(), sum, "{size}");
        std::mem::forget(buffer); // as if h2 kept it
    }
    assert_eq!((0..IN_A_BUFFER).map(|_| all.received()).last(), Some(7));
}

#[test]
fn memory_that_is_read_into_again_had_no_pieces_left() {
    let all = Unread::default();
    let [first, second] = [(); 2].map(|()| mk_buffer(100));
    for buffer in [&first, &second] {
        read(&all, buffer, 0, 50);
        all.received();
    }
    // The begin of the frame was moved there.
    all.read(&first[90..95], first.as_ptr().addr() + 100, 80);
    assert_eq!(kept(&all), 1);
}

#[test]
fn pieces_are_copied_unless_they_fill_their_buffers() {
    let all = Arc::<Unread>::default();
    let body = all.body();
    for (size, piece, is_copied) in [(100, 100, false), (100, 74, true), (100, 75, false), (BUFFER, 1, true)] {
        let buffer = mk_buffer(size);
        read(&all, &buffer, 0, size);
        all.received();
        let piece = buffer.slice(..piece);
        let taken = body.take(piece.clone());
        assert_eq!((taken == piece, taken.as_ptr() != piece.as_ptr()), (true, is_copied), "{size} {piece:?}");
    }
    assert_ne!(body.take(Bytes::from_static(b"x")).as_ptr(), b"x".as_ptr(), "HTTP/1.1 has buffers as well");
}

#[test]
fn so_many_pieces_of_a_body_are_on_the_way() {
    let body = Arc::<Unread>::default().body();
    let cx = Context::from_waker(noop_waker_ref());
    let mut on_the_way: Vec<_> = (0..MOST_PIECES)
        .map(|_| {
            assert!(body.poll_room(&cx).is_ready());
            body.take(Bytes::from_static(b"x"))
        })
        .collect();
    assert!(body.poll_room(&cx).is_pending());
    on_the_way.pop();
    assert!(body.poll_room(&cx).is_ready());
}

#[test]
fn dropped_pieces_are_forgotten_once_every_body_waits() {
    let all = Arc::new(Unread::default());
    let [one, other] = [all.body(), all.body()];
    let _first = receive(&all, 10);
    let waker = wait(&one);
    all.sweep();
    all.sweep();
    assert_eq!(kept(&all), 10, "they may be the other's");
    let late = wait(&other);
    drop(other);
    late.wake(); // h2 resets the stream
    let _second = receive(&all, 2);
    all.sweep();
    assert_eq!(kept(&all), 2, "only these two may have come since the last sweep");
    waker.wake_by_ref();
    all.sweep();
    all.sweep();
    assert_eq!(kept(&all), 2, "they are the first one's, whose backend does not ask for them");
    assert!(one.poll(&Context::from_waker(noop_waker_ref()), |_| Poll::Ready(())).is_ready());
    all.sweep();
    assert_eq!(kept(&all), 2, "there may be another one behind the one that was taken");
    let woken_meanwhile = one.poll(&Context::from_waker(noop_waker_ref()), |cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    all.sweep();
    assert_eq!((woken_meanwhile.is_pending(), kept(&all)), (true, 2), "a piece came before the poll ended");
    wait(&one);
    all.sweep();
    assert_eq!(kept(&all), 1, "the last one is in the current buffer");
}
