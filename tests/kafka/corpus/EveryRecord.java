import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Prints a record of every kind and version that a release of Kafka knows, no field at its default, as hex. */
public class EveryRecord {
    private static final String[] CONTROL = {
        "2 LeaderChangeMessage", "3 SnapshotHeaderRecord", "4 SnapshotFooterRecord", "5 KRaftVersionRecord", "6 VotersRecord"};

    public static void main(String[] arguments) throws Exception {
        for (MetadataRecordType type : MetadataRecordType.values()) {
            ApiMessage any = type.newMetadataRecord();
            for (short version = any.lowestSupportedVersion(); version <= any.highestSupportedVersion(); version++) {
                ApiMessageAndVersion record = new ApiMessageAndVersion((ApiMessage) filled(type.newMetadataRecord(), version), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                MetadataRecordSerde serde = new MetadataRecordSerde();
                ByteBuffer out = ByteBuffer.allocate(serde.recordSize(record, cache));
                serde.write(record, cache, new ByteBufferAccessor(out));
                System.out.println("data " + type.id() + " " + version + " " + hex(out));
            }
        }
        for (String control : CONTROL) {
            String[] parts = control.split(" ");
            Message any;
            try {
                any = (Message) Class.forName("org.apache.kafka.common.message." + parts[1]).getConstructor().newInstance();
            } catch (ClassNotFoundException absent) {
                continue;
            }
            for (short version = any.lowestSupportedVersion(); version <= any.highestSupportedVersion(); version++) {
                Message message = filled((Message) any.getClass().getConstructor().newInstance(), version);
                System.out.println("control " + parts[0] + " " + version + " " + hex(written(message, version)));
            }
        }
    }

    private static <T> T filled(T message, short version) throws Exception {
        for (Method method : message.getClass().getMethods()) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1 && !Modifier.isStatic(method.getModifiers())) {
                Object before = null;
                try {
                    String name = method.getName().substring(3, 4).toLowerCase() + method.getName().substring(4);
                    before = message.getClass().getMethod(name).invoke(message);
                } catch (NoSuchMethodException none) {
                }
                Object value = method.getName().equals("setVersion") && method.getParameterTypes()[0] == short.class
                    ? (Object) version : sample(method.getGenericParameterTypes()[0], version);
                method.invoke(message, value);
                try {
                    written((Message) message, version);
                } catch (RuntimeException unsupported) {
                    // The version does not have the field.
                    method.invoke(message, before);
                }
            }
        }
        return message;
    }

    private static ByteBuffer written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return out;
    }

    private static Object sample(Type type, short version) throws Exception {
        if (type == boolean.class) return true;
        if (type == byte.class) return (byte) 1;
        if (type == short.class) return (short) 3;
        if (type == int.class || type == Integer.class) return 5;
        if (type == long.class) return 7L;
        if (type == double.class) return 1.5;
        if (type == String.class) return "a\"b\\c\u00e9";
        if (type == byte[].class) return new byte[] {1, 2, 3};
        if (type == Uuid.class) return new Uuid(11, 13);
        if (type instanceof ParameterizedType) {
            Type element = ((ParameterizedType) type).getActualTypeArguments()[0];
            List<Object> list = new ArrayList<>();
            list.add(sample(element, version));
            return list;
        }
        Class<?> raw = (Class<?>) type;
        if (List.class.isAssignableFrom(raw)) return raw.getConstructor().newInstance();
        if (java.util.AbstractCollection.class.isAssignableFrom(raw)) return collection(raw, version);
        return filled(raw.getConstructor().newInstance(), version);
    }

    @SuppressWarnings("unchecked")
    private static Object collection(Class<?> raw, short version) throws Exception {
        Object all = raw.getConstructor().newInstance();
        Type element = ((ParameterizedType) raw.getGenericSuperclass()).getActualTypeArguments()[0];
        ((java.util.Collection<Object>) all).add(sample(element, version));
        return all;
    }

    private static String hex(ByteBuffer out) {
        StringBuilder text = new StringBuilder();
        for (byte one : out.array()) text.append(String.format("%02x", one));
        return text.toString();
    }
}
