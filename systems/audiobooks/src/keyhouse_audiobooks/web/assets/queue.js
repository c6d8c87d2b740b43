/* Playback events that wait to be sent, in IndexedDB: they survive a reload and a lost network. */

const NAME = "keyhouse-audiobooks";
let opened = null;

function open() {
  opened ||= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("events", { keyPath: "id", autoIncrement: true });
      request.result.createObjectStore("kept", { keyPath: "id" });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function run(store, mode, work) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(store, mode);
    const request = work(transaction.objectStore(store));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

export const events = {
  add: event => run("events", "readwrite", store => store.add(event)),
  all: () => run("events", "readonly", store => store.getAll()),
  remove: id => run("events", "readwrite", store => store.delete(id)),
};

/** Books that are kept on this device: id, title, author, files and bytes. */
export const keptBooks = {
  put: book => run("kept", "readwrite", store => store.put(book)),
  get: id => run("kept", "readonly", store => store.get(id)),
  all: () => run("kept", "readonly", store => store.getAll()),
  remove: id => run("kept", "readwrite", store => store.delete(id)),
};
