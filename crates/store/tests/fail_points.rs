//! Each kind of call that the store makes to the operating system, failed at each place.
//!
//! A run of the simulator is repeated: the first call of a kind fails, then the second, and so on
//! until there are no more. Each time the store must name the path, lose nothing that it
//! acknowledged, go on or refuse, and be right when it is opened again.

mod simulator;

use simulator::disk::Call;

/// Runs that are repeated, the more the fewer such calls they make.
const SEEDS: std::ops::Range<u64> = 0..40;
/// Places after which no other run is begun.
const PLACES: u32 = 20;
/// A run makes some calls hundreds of times: each of the first ones fails, then every few.
const FIRST: u64 = 12;

fn fail_each(kind: Call) {
    let mut places: u32 = 0;
    for seed in SEEDS {
        if places >= PLACES {
            break;
        }
        let mut left = 0;
        loop {
            let run = |traced| simulator::run_with_fail_point(seed, kind, left, traced);
            match run(false).result {
                Ok(summary) if summary.failed_calls == 0 => break,
                Ok(_) => places += 1,
                Err(reason) => panic!(
                    "{}\nseed {seed}, {kind:?} number {left}: {reason}",
                    run(true).trace.join("\n")
                ),
            }
            left += if left < FIRST { 1 } else { 5 };
        }
    }
    assert!(places > 0, "no run makes such a call");
}

macro_rules! fail_points {
    ($($name:ident: $call:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                fail_each(Call::$call);
            }
        )*
    };
}

fail_points! {
    opening_a_file: Open,
    creating_a_file: Create,
    creating_a_directory: CreateDirectory,
    syncing_a_directory: SyncDirectory,
    syncing_a_disk: SyncAll,
    listing_a_directory: List,
    looking_for_a_file: Exists,
    renaming_a_file: Rename,
    removing_a_file: RemoveFile,
    removing_a_directory: RemoveDirectory,
    measuring_the_disk: DiskSpace,
    measuring_a_file: Length,
    asking_for_the_time_of_a_file: Modified,
    writing: Write,
    reading: Read,
    reserving_space: Allocate,
    setting_the_length: SetLength,
    writing_zeros: Zero,
    syncing_a_file: Sync,
    mapping_a_file: Map,
    locking_a_file: Lock,
}
