//! The corpus that fuzzing has left, and each finding ever: what the fuzz targets do with it, in every
//! test run. A crate that owns decoders includes this file and names its targets.

use std::path::Path;

/// Runs a target on each case that is kept of it.
pub fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|directory| directory.join("fuzz/corpus").join(target))
        .find(|corpus| corpus.is_dir())
        .expect("the corpus is part of the tree");
    let mut count = 0;
    for case in std::fs::read_dir(&corpus).expect("it can be listed") {
        let path = case.expect("it can be listed").path();
        // Tells which case it was, should it panic.
        eprintln!("{}", path.display());
        run(&std::fs::read(path).expect("it can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", corpus.display());
}

macro_rules! replayed {
    ($($target:ident),* $(,)?) => {
        $(
            #[test]
            fn $target() {
                replay::replay(stringify!($target), $target::run);
            }
        )*
    };
}
