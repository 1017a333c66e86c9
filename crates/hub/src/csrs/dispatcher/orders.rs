//! Tells the dispatcher which signers to serve.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::debug;

use crate::csrs::signer::Signer;
use addon_signer_core::identity::SignerName;

/// An order to the dispatcher.
pub(super) enum Order {
    Serve(String, Arc<Signer>),
    Stop {
        signer_name: String,
        /// The AddOnSigner; nothing is stopped if another one has taken over its signer name.
        name: String,
    },
}

/// Starts and stops signers.
#[derive(Clone)]
pub(crate) struct Signing(mpsc::UnboundedSender<Order>);

impl Signing {
    /// The sender and the receiver of orders.
    pub(super) fn channel() -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (sender, orders) = mpsc::unbounded_channel();
        (Self(sender), orders)
    }

    /// Starts to serve a signer name.
    pub(crate) fn serve(&self, signer_name: &SignerName, signer: Signer) {
        self.send(Order::Serve(signer_name.to_string(), Arc::new(signer)));
    }

    /// Stops serving a signer name for the AddOnSigner `name`; work on its CSRs ends at once.
    pub(crate) fn stop(&self, signer_name: &SignerName, name: &str) {
        self.send(Order::Stop { signer_name: signer_name.to_string(), name: name.to_owned() });
    }

    fn send(&self, order: Order) {
        if self.0.send(order).is_err() {
            debug!("The dispatcher of CSRs has ended, and with it the hub");
        }
    }
}
