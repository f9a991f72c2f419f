//! From those who change what name servers know to the one who tells them.

use tokio::sync::watch;

/// Says that topics or permissions changed; many changes in a row are one registration.
#[derive(Debug)]
pub struct ChangeSignal {
    generation: watch::Sender<u64>,
}

impl Default for ChangeSignal {
    fn default() -> Self {
        Self { generation: watch::Sender::new(0) }
    }
}

impl ChangeSignal {
    /// Something that name servers must know changed.
    pub fn changed(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Counts the changes so far.
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Hears of every change from now on.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}
