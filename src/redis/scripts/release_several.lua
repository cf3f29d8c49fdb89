-- Deletes the locks that are ours, and notifies the first waiter in the queue of each.
return {delete_all_own()}
