use proptest::prelude::*;

use super::*;

fn table(entries: &[(i32, i64)]) -> EpochTable {
    let entries =
        entries.iter().map(|(epoch, start)| EpochEntry { epoch: Epoch(*epoch), start: *start });
    EpochTable::new(entries.collect()).expect("in order")
}

fn of_slave(frame: SlaveFrame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn of_master(frame: &MasterFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

#[test]
fn bytes_of_a_slave_are_those_of_java() {
    let handshake =
        Handshake { is_sync_from_last_file: true, kind: SlaveKind::Learner, replica: 0x0203 };
    let bytes = [0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 2, 3];
    assert_eq!(of_slave(SlaveFrame::Handshake(handshake)), bytes);
    let bytes = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 2];
    assert_eq!(of_slave(SlaveFrame::Has(0x0102)), bytes);
}

#[test]
fn a_slave_that_can_promise_is_no_learner_to_java() {
    for group in [0, 1, 0x3FFF] {
        let kind = SlaveKind::Promises { group };
        let handshake = Handshake { is_sync_from_last_file: false, kind, replica: 2 };
        let bytes = of_slave(SlaveFrame::Handshake(handshake));
        assert_ne!(bytes[6..8], [0, 1]);
        assert_eq!(
            SlaveFrame::decode(&bytes),
            Ok(Some((SlaveFrame::Handshake(handshake), HANDSHAKE_BYTES)))
        );
    }
    // Whatever else stands there is an ordinary slave, as it is to Java.
    let bytes = [0, 0, 0, 1, 0, 7, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2];
    let plain = Handshake { is_sync_from_last_file: false, kind: SlaveKind::Plain, replica: 2 };
    assert_eq!(SlaveFrame::decode(&bytes), Ok(Some((SlaveFrame::Handshake(plain), 16))));
}

#[test]
fn bytes_of_a_master_are_those_of_java() {
    let epochs = table(&[(1, 0), (4, 0x0100)]);
    let hello = MasterFrame::Hello { epoch: Epoch(4), log_end: 0x0203, epochs };
    #[rustfmt::skip]
    let bytes = [
        0, 0, 0, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 4,
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1, 0,
    ];
    assert_eq!(of_master(&hello), bytes);
    let header = PieceHeader {
        physical_offset: 0x0104,
        bytes: 2,
        epoch: Epoch(4),
        epoch_start: 0x0100,
        confirmed: 0x0102,
    };
    #[rustfmt::skip]
    let bytes = [
        0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 4,
        0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2,
        8, 9,
    ];
    assert_eq!(of_master(&MasterFrame::Piece(header, &[8, 9])), bytes);
}

#[test]
fn what_is_ours_has_the_form_of_a_handshake() {
    #[rustfmt::skip]
    let bytes = [
        0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 9,
    ];
    assert_eq!(of_master(&MasterFrame::Ping(9)), bytes);
    assert_eq!(of_slave(SlaveFrame::Pong(9)), [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9]);
    let bytes = of_master(&MasterFrame::Refused("no"));
    assert_eq!(bytes[..8], [0, 0, 0, 6, 0, 0, 0, 2]);
    assert_eq!(bytes[20..], *b"no");
}

#[test]
fn impossible_numbers_are_named() {
    let slave = |bytes: &[u8]| SlaveFrame::decode(bytes).expect_err("damaged").to_string();
    assert!(slave(b"GET / HTTP/1.1").contains("no state"));
    assert!(slave(&[0, 0, 0, 0]).contains("begins with 0"));
    assert!(slave(&of_slave(SlaveFrame::Has(-1))).contains("the end of a slave's log is -1"));
    let master = |bytes: &[u8]| MasterFrame::decode(bytes).expect_err("damaged").to_string();
    assert!(master(&[0, 0, 0, 3]).contains("begins with 3"));
    let mut long = of_master(&MasterFrame::Ping(1));
    long[4] = 0x7F;
    assert!(master(&long).contains("length of a frame"), "before its body is waited for");
    let mut epochs = of_master(&MasterFrame::Hello {
        epoch: Epoch(2),
        log_end: 9,
        epochs: table(&[(1, 0), (2, 5)]),
    });
    epochs[35] = 1;
    assert!(master(&epochs).contains("1-5 does not come after"));
    let mut reason = of_master(&MasterFrame::Refused("x"));
    reason[20] = 0xFF;
    assert!(master(&reason).contains("UTF-8"));
}

#[test]
fn of_many_epochs_the_newest_are_told_and_of_long_reasons_the_beginning() {
    let many: Vec<_> = (0..EPOCHS_MAX as i32 + 5).map(|n| (n, i64::from(n))).collect();
    let hello = MasterFrame::Hello { epoch: Epoch(1_004), log_end: 2_000, epochs: table(&many) };
    let bytes = of_master(&hello);
    let Ok(Some((MasterFrame::Hello { epochs, .. }, _))) = MasterFrame::decode(&bytes) else {
        panic!("no hello");
    };
    assert_eq!(epochs, table(&many[5..]));
    let reason = "ü".repeat(REASON_BYTES_MAX);
    let bytes = of_master(&MasterFrame::Refused(&reason));
    let Ok(Some((MasterFrame::Refused(told), _))) = MasterFrame::decode(&bytes) else {
        panic!("no reason");
    };
    assert_eq!(told, "ü".repeat(REASON_BYTES_MAX / 2));
}

#[test]
fn groups_differ_in_their_marks() {
    let mark = group_mark("cluster", "broker-a");
    assert_eq!(mark, group_mark("cluster", "broker-a"));
    assert_ne!(mark, group_mark("cluster", "broker-b"));
    assert_ne!(mark, group_mark("other", "broker-a"));
    assert_ne!(group_mark("ab", "c"), group_mark("a", "bc"));
}

fn slave_frames() -> impl Strategy<Value = SlaveFrame> {
    let kind = prop_oneof![
        Just(SlaveKind::Plain),
        Just(SlaveKind::Learner),
        (0..0x4000_u16).prop_map(|group| SlaveKind::Promises { group })
    ];
    prop_oneof![
        (any::<bool>(), kind, 0..i64::MAX).prop_map(|(is_sync_from_last_file, kind, replica)| {
            SlaveFrame::Handshake(Handshake { is_sync_from_last_file, kind, replica })
        }),
        (0..i64::MAX).prop_map(SlaveFrame::Has),
        any::<u64>().prop_map(SlaveFrame::Pong),
    ]
}

proptest! {
    #[test]
    fn a_slaves_frames_are_read_as_written_and_wait_until_whole(
        frame in slave_frames(),
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = of_slave(frame);
        let whole = bytes.len();
        prop_assert_eq!(SlaveFrame::decode(&bytes[..whole - 1]), Ok(None));
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(SlaveFrame::decode(&bytes), Ok(Some((frame, whole))));
    }

    #[test]
    fn a_masters_frames_are_read_as_written_and_wait_until_whole(
        which in 0..4,
        numbers in (0..i32::MAX, 0..i64::MAX / 2, 0..i64::MAX, any::<i64>()),
        body in prop::collection::vec(any::<u8>(), 0..40),
        steps in prop::collection::vec((1..9_i32, 0..99_i64), 0..9),
        cut in 1..usize::MAX,
    ) {
        let (epoch, offset, epoch_start, confirmed) = numbers;
        let text = String::from_utf8_lossy(&body).into_owned();
        let (mut at, mut entries) = ((0, 0), Vec::new());
        for (more, bytes) in steps {
            at = (at.0 + more, at.1 + bytes);
            entries.push(at);
        }
        let frame = match which {
            0 => MasterFrame::Hello { epoch: Epoch(epoch), log_end: offset, epochs: table(&entries) },
            1 => {
                let header = PieceHeader {
                    physical_offset: offset,
                    bytes: body.len(),
                    epoch: Epoch(epoch),
                    epoch_start,
                    confirmed,
                };
                MasterFrame::Piece(header, &body)
            }
            2 => MasterFrame::Ping(confirmed.cast_unsigned()),
            _ => MasterFrame::Refused(&text),
        };
        let mut bytes = of_master(&frame);
        let whole = bytes.len();
        prop_assert_eq!(MasterFrame::decode(&bytes[..whole - 1 - cut % whole]), Ok(None));
        bytes.push(7);
        prop_assert_eq!(MasterFrame::decode(&bytes), Ok(Some((frame, whole))));
    }

    #[test]
    fn arbitrary_bytes_never_panic(first in 0..8_u8, mut bytes in prop::collection::vec(any::<u8>(), 4..80)) {
        bytes[..4].copy_from_slice(&[0, 0, 0, first]);
        if let Ok(Some((_, whole))) = SlaveFrame::decode(&bytes) {
            prop_assert!(whole <= bytes.len());
        }
        if let Ok(Some((_, whole))) = MasterFrame::decode(&bytes) {
            prop_assert!(whole <= bytes.len());
        }
    }
}
